"""Symbolic sizes in files of `torch.export.save`, which are expressions of sympy as text."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from hlotune.hlo.frontends.symbolic_sizes import Argument, Size, evaluated
from hlotune.schedules.errors import ProgramError

_SIGNS = {"Mul": "*", "Add": " + "}
_FUNCTIONS = {"FloorDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min"}


def size_of(size: Mapping[str, Any], path: str) -> Size:
    """A size of a tensor as a number, or as an expression such as `2*s77`."""
    if "as_int" in size:
        return int(size["as_int"])
    text = size["as_expr"]["expr_str"]
    try:
        found = _written(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if found is None:
        raise ProgramError(
            f"expected sizes of sums, products and quotients of symbols in {path}, got {text}; "
            "export the module with simpler dynamic_shapes"
        )
    return found


def _written(tree: ast.expr) -> str | None:
    """An expression of sympy, as its `srepr` writes it, in plain arithmetic."""
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return str(tree.value)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or not tree.args:
        return None
    name, first = tree.func.id, tree.args[0]
    if name == "Symbol" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value if first.value.isidentifier() else None
    if name == "Integer":
        value = ast.unparse(first)
        return value if value.removeprefix("-").isdecimal() else None
    parts = [_written(part) for part in tree.args]
    if None in parts:
        return None
    texts = [str(part) for part in parts]
    if name in _SIGNS:
        return _SIGNS[name].join(t if t.isalnum() else f"({t})" for t in texts)
    return f"{_FUNCTIONS[name]}({', '.join(texts)})" if name in _FUNCTIONS else None


def require_in_range(
    ranges: Mapping[str, tuple[int | None, int | None]],
    arguments: Sequence[Argument],
    shapes: Sequence[tuple[int, ...]],
    path: str,
) -> None:
    """Raises ProgramError for a size that the program was not exported for, or two of a symbol."""
    named: dict[str, int] = {}
    pairs = [
        p for a, s in zip(arguments, shapes, strict=True) for p in zip(a.sizes, s, strict=True)
    ]
    for size, number in pairs:
        if isinstance(size, str) and size.isidentifier():
            least, most = ranges.get(size, (None, None))
            if number < (least or 0) or (most is not None and number > most):
                limits = f"at least {least or 0}" + ("" if most is None else f" and at most {most}")
                raise ProgramError(
                    f"expected {limits} as {size} of {path}, as it was exported, got {number}; "
                    "export the module with other limits of its dynamic_shapes"
                )
            named[size] = number
    for size, number in pairs:
        if isinstance(size, str) and evaluated(size, named) != number:
            raise ProgramError(
                f"expected {evaluated(size, named)} as {size} of {path}, got {number}; give sizes "
                "of the symbols alone"
            )

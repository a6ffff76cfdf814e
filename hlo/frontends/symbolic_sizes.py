"""Sizes of symbolic dimensions: from names and numbers to the shapes of a program's arguments.

Nothing here imports jax, so that the process that parses files first begins fast.
"""

import ast
import operator
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from hlotune.schedules.errors import ProgramError

Size = int | str
"""A number, or an expression such as `batch`, `2*batch`, `batch + 1`."""

MOST_VARIANTS = 64
"""Combinations of sizes of one program."""
_LONGEST = 200
"""Characters of an expression; a longer text is a name."""
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "max": max,
    "min": min,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a program, some of whose sizes may be expressions."""

    name: str
    sizes: tuple[Size, ...]

    @property
    def places(self) -> dict[str, str]:
        """Expressions by the names of their places, `x.0` for the first axis of x."""
        return {f"{self.name}.{k}": s for k, s in enumerate(self.sizes) if isinstance(s, str)}

    def __str__(self) -> str:
        return f"{self.name} is {' x '.join(map(str, self.sizes)) or 'a number'}"


def static_shapes(
    arguments: Sequence[Argument], sizes: Mapping[str, int], path: str
) -> list[tuple[int, ...]]:
    """The shapes of arguments.

    Args:
        sizes: of symbols, or of places such as `x.0`, by name.

    Raises:
        ProgramError: sizes are missing, too many, or say no size of some axis.
    """
    places = {place: text for a in arguments for place, text in a.places.items()}
    named = {**sizes, **{places[p]: n for p, n in sizes.items() if p in places}}
    symbols = _symbols(places.values(), named)
    known = {*symbols, *places, *places.values()}
    if unknown := sorted(set(sizes) - known):
        raise ProgramError(
            f"expected sizes of symbolic dimensions of {path}, which are "
            f"{', '.join(sorted(symbols)) or 'none'}, got {', '.join(unknown)}; leave that out"
        )
    if missing := sorted(symbols - set(named)):
        raise _missing(missing, [a for a in arguments if a.places], path)
    for place in sizes.keys() & places.keys():
        _check_once(places[place], sizes[place], (sizes, named), path)
    return [tuple(_size(s, named, a, path) for s in a.sizes) for a in arguments]


def _check_once(text: str, size: int, others: Sequence[Mapping[str, int]], path: str) -> None:
    """Raises ProgramError where a size that was given by its place was given otherwise, too."""
    for other in others:
        if other.get(text, size) != size:
            raise ProgramError(
                f"expected one size of {text} in {path}, got {size} and {other[text]}; give it once"
            )


def _symbols(texts: Any, named: Mapping[str, int]) -> set[str]:
    """The names that expressions are made of; of one whose size is given, itself."""
    return {name for text in texts for name in ([text] if text in named else names_in(text))}


def _missing(missing: Sequence[str], arguments: Sequence[Argument], path: str) -> ProgramError:
    example = " ".join(f"--dim {shlex.quote(name)}=8" for name in missing)
    return ProgramError(
        f"expected a size for each symbolic dimension of {path}, got none for "
        f"{', '.join(missing)} ({', '.join(map(str, arguments))}); give them on the command line "
        f"as in {example}, or as in hlotune.load(..., dims={{{missing[0]!r}: 8}})"
    )


def _size(size: Size, named: Mapping[str, int], argument: Argument, path: str) -> int:
    if isinstance(size, int):
        return size
    try:
        found = named[size] if size in named else evaluated(size, named)
    except ArithmeticError:
        found = -1
    if found < 0:
        raise ProgramError(
            f"expected sizes of at least 0 in {path}, got another for {size} in "
            f"{argument}; give another --dim"
        )
    return found


def names_in(text: str) -> list[str]:
    """The names of an expression; of a text that is none, such as `batch size`, itself."""
    tree = _tree(text)
    if tree is None:
        return [text]
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]


def evaluated(text: str, named: Mapping[str, int]) -> int:
    """The number that an expression of whole numbers and names of sizes has."""
    tree = _tree(text)
    return named[text] if tree is None else _value(tree, named)


def _tree(text: str) -> ast.expr | None:
    """An expression that `_value` knows; None for any other text."""
    if len(text) > _LONGEST:
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_known(tree) else None


def _is_known(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Name):
        return True
    if isinstance(tree, ast.Constant):
        return type(tree.value) is int
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _OPERATORS and _is_known(tree.left) and _is_known(tree.right)
    if isinstance(tree, ast.Call):
        plain = isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS
        return plain and not tree.keywords and len(tree.args) > 1 and all(map(_is_known, tree.args))
    return False


def _value(tree: ast.expr, named: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Name):
        return named[tree.id]
    if isinstance(tree, ast.Constant):
        return int(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.BinOp):
        return _OPERATORS[type(tree.op)](_value(tree.left, named), _value(tree.right, named))
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)
    return _FUNCTIONS[tree.func.id](*(_value(a, named) for a in tree.args))


def combinations(dims: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Sizes by name, the last dimension changing first.  Raises ProgramError."""
    for name, sizes in dims.items():
        listed = isinstance(sizes, list | tuple | range)
        if not listed or not all(type(size) is int for size in sizes):
            raise ProgramError(
                f"expected the sizes of the dimension {name} as whole numbers in a list, as in "
                f"[1, 8], got {sizes!r}; hlotune.load takes a size without a list"
            )
        if not sizes or len(set(sizes)) < len(sizes):
            raise ProgramError(
                f"expected different sizes of the dimension {name}, got {list(sizes)}; give each "
                "size once"
            )
    found = [dict(zip(dims, sizes, strict=True)) for sizes in product(*dims.values())]
    if len(found) > MOST_VARIANTS:
        raise ProgramError(
            f"expected at most {MOST_VARIANTS} combinations of sizes, got {len(found)}; give fewer "
            f"sizes of {', '.join(dims)}"
        )
    return found

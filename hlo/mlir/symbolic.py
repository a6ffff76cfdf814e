"""StableHLO with dynamic dimensions: what they are called, and the module with sizes for them.

JAX exports a function of symbolic shapes so, `tensor<?x8xf32>`.  Their names stand in the messages
of the assertions that it writes about them.
"""

import re
from collections.abc import Sequence
from typing import Any

from hlotune.hlo.frontends.symbolic_sizes import Argument, Size
from hlotune.hlo.mlir.module import Module, parse
from hlotune.hlo.mlir.versions import PassManager, ir, refine_shapes
from hlotune.schedules.errors import ProgramError

_ASSERTION = "shape_assertion"
_SPECIFIED = re.compile(r"polymorphic shapes specifications: (.*?)\. Obtained dimension", re.DOTALL)
_SHAPE = re.compile(r"\.shape = \(([^=]*?),?\)(?:,|$)")
_DYNAMIC = -1


def symbolic_arguments(module: Module) -> list[Argument]:
    """The arguments of `@main`; none where all of its types have sizes."""
    main = module.functions().get("main")
    if main is None or not main.regions[0].blocks:
        return []
    with module.op.context:
        types = [a.type for a in _arguments(main) if isinstance(a.type, ir.RankedTensorType)]
        if len(types) < len(_arguments(main)) or all(t.has_static_shape for t in types):
            return []
        sizes = [[_DYNAMIC if t.is_dynamic_dim(k) else t.get_dim_size(k) for k in range(t.rank)]
                 for t in types]  # fmt: skip
    named = iter(_specified(module, sizes))
    return [
        Argument(f"arg{n}", tuple(next(named)) if _DYNAMIC in own else tuple(own))
        for n, own in enumerate(sizes)
    ]


def _arguments(function: Any) -> Any:
    return function.regions[0].blocks[0].arguments


def _specified(module: Module, sizes: Sequence[Sequence[int]]) -> list[list[Size]]:
    """The sizes of arguments with dynamic ones: as JAX tells them, else by their places."""
    symbolic = {n: own for n, own in enumerate(sizes) if _DYNAMIC in own}
    found = [_sizes(text) for text in _SHAPE.findall(_message(module))]
    fits = len(found) == len(symbolic) and all(
        len(told) == len(own) and all(o in (_DYNAMIC, t) for t, o in zip(told, own, strict=True))
        for told, own in zip(found, symbolic.values(), strict=True)
    )
    if fits:
        return found
    return [
        [f"arg{n}.{k}" if size == _DYNAMIC else size for k, size in enumerate(own)]
        for n, own in symbolic.items()
    ]


def _sizes(text: str) -> list[Size]:
    """`b, 2*s, 8` as a list; a comma inside of a call is none between sizes."""
    parts = [p.strip() for p in re.split(r",(?![^()]*\))", text) if p.strip()]
    return [int(p) if p.isdecimal() else p for p in parts]


def _message(module: Module) -> str:
    """What JAX's assertions say about symbolic shapes; empty where there are none."""
    texts: list[str] = []

    def look(operation: Any) -> Any:
        attributes = operation.attributes
        if operation.name == "stablehlo.custom_call" and "error_message" in attributes:
            texts.append(ir.StringAttr(attributes["error_message"]).value)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    with module.op.context:
        module.op.operation.walk(look)
    found = _SPECIFIED.search(texts[0]) if texts else None
    return found[1] if found else ""


def with_shapes(module: Module, shapes: Sequence[tuple[int, ...]], path: str) -> Module:
    """The module with these shapes of its arguments, and of all that follows from them.

    Raises:
        ProgramError: the program does not hold for these shapes, or has others that do not follow.
    """
    with module.op.context, ir.Location.unknown():
        kinds = [
            ir.RankedTensorType(a.type).element_type for a in _arguments(module.function("main"))
        ]
        types = [str(ir.RankedTensorType.get(s, k)) for s, k in zip(shapes, kinds, strict=True)]
        try:
            passes = f"builtin.module(stablehlo-refine-arguments{{types={','.join(types)}}})"
            PassManager.parse(passes).run(module.op.operation)
            refined = refine_shapes(
                module.bytecode(), enable_shape_assertions=True, validate_static_shapes=True
            )
        except (ir.MLIRError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())[:400]
            raise ProgramError(
                f"expected a program in {path} that holds for arguments of {', '.join(types)}, got "
                f"one that does not: {said}; give other sizes of its dimensions"
            ) from error
    return parse(refined)

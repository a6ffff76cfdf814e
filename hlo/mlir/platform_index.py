"""Modules of `jax.export` for several platforms: they take the number of one as an argument.

JAX gives it in each call.  A program here is for the host, so that the argument gets its number,
and branches for other platforms are left out.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.rewrite import inline_calls, signature
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.cpu import HOST_PLATFORM

_MARK, _INDEX = "jax.global_constant", "_platform_index"
_FIELD = 9
"""The number of the field of the FlatBuffer of an exported function that names platforms."""


def platforms_of(data: bytes) -> tuple[str, ...]:
    """The platforms in what `jax.export` serializes, in order; none in other data."""
    try:
        return tuple(_texts(data, _field(data, _number("I", data, 0), _FIELD)))
    except (struct.error, UnicodeDecodeError, ValueError):
        return ()


def _number(form: str, data: bytes, at: int) -> int:
    return int(struct.unpack_from(f"<{form}", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table lies.  Raises ValueError where it has none."""
    names = table - _number("i", data, table)
    place = 4 + 2 * number
    if names < 0 or place >= _number("H", data, names):
        raise ValueError("no such field")
    offset = _number("H", data, names + place)
    if not offset:
        raise ValueError("no such field")
    return table + offset


def _texts(data: bytes, at: int) -> Iterator[str]:
    """The texts of a vector, to which the number at a place refers."""
    vector = at + _number("I", data, at)
    for k in range(min(_number("I", data, vector), 64)):
        entry = vector + 4 + 4 * k
        text = entry + _number("I", data, entry)
        yield data[text + 4 : text + 4 + _number("I", data, text)].decode("ascii")


def fill_in_platform(module: Module, platforms: Sequence[str], path: str) -> None:
    """Gives the number of the host's platform to a module that takes one, in place.

    Args:
        platforms: those that the file names, in order; none where it does not.

    Raises:
        ProgramError: the module is for other platforms, or its numbers are not known and matter.
    """
    main = module.functions().get("main")
    if main is None or (position := _position(main)) is None:
        return
    with module.op.context, ir.Location.unknown():
        inline_calls(module, main)
        argument = main.regions[0].blocks[0].arguments[position]
        if list(argument.uses):
            _put(main, argument, _host(platforms, path))
            _choose_branches(main)
        _leave_out(main, position)


def _position(main: Any) -> int | None:
    """That of the argument of a function that takes the number of a platform."""
    if "arg_attrs" not in main.attributes or not main.regions[0].blocks:
        return None
    for k, entry in enumerate(ir.ArrayAttr(main.attributes["arg_attrs"])):
        known = ir.DictAttr(entry)
        if _MARK in known and ir.StringAttr(known[_MARK]).value == _INDEX:
            return k
    return None


def _host(platforms: Sequence[str], path: str) -> int:
    if HOST_PLATFORM in platforms:
        return list(platforms).index(HOST_PLATFORM)
    what = f"one for {', '.join(platforms)}" if platforms else "one that does not name them"
    raise ProgramError(
        f"expected a program for the platform {HOST_PLATFORM} in {path}, got {what}, whose "
        "computation depends on the number of its platform; export it with "
        f"platforms=[{HOST_PLATFORM!r}], or save what exported.serialize() gives"
    )


def _put(main: Any, argument: Any, number: int) -> None:
    """Puts a number in the place of an argument."""
    kind = ir.RankedTensorType(argument.type)
    with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]):
        value = ir.IntegerAttr.get(kind.element_type, number)
        constant = stablehlo.ConstantOp(ir.DenseElementsAttr.get_splat(kind, value))
    argument.replace_all_uses_with(constant.result)


def _choose_branches(main: Any) -> None:
    """Puts branches that numbers choose in the places of their cases."""
    while cases := [c for c in operations_in(main, _is_case) if _known(c.operands[0]) is not None]:
        case = cases[0]
        number = _known(case.operands[0])
        assert number is not None
        inside = number if 0 <= number < len(case.regions) else -1
        *operations, end = case.regions[inside].blocks[0].operations
        for operation in operations:
            operation.operation.move_before(case)
        replace([case], list(case.results), list(end.operation.operands))


def _is_case(name: str) -> bool:
    return name == "stablehlo.case"


def _known(value: Any) -> int | None:
    """The number that a value is, where it is a constant, or one of another type."""
    made = value.owner
    if not isinstance(made, ir.Operation):  # an argument of a block
        return None
    if made.name == "stablehlo.convert":
        return _known(made.operands[0])
    if made.name != "stablehlo.constant" or ir.RankedTensorType(value.type).rank:
        return None
    return int(ir.DenseIntElementsAttr(made.attributes["value"])[0])


def _leave_out(main: Any, position: int) -> None:
    """Takes an argument away that nothing uses."""
    inputs, results = signature(main)
    kind = ir.FunctionType.get([*inputs[:position], *inputs[position + 1 :]], results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    kept = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
    del kept[position]
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
    main.regions[0].blocks[0].erase_argument(position)

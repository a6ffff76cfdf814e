"""The text of a call from XLA to a kernel: a StableHLO module for each site."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.dispatcher import ensure_registered
from hlotune.codegen.runtime.prepacking import part_bytes
from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.custom_calls import row_major_text


@dataclass(frozen=True, slots=True)
class Parts:
    """A packed argument that has several parts, of which a call reads one."""

    count: int
    index: TensorType
    """The type of the scalar that says which."""

    def bytes(self, form_bytes: int) -> int:
        """The bytes of all parts together."""
        return self.count * part_bytes(form_bytes)


_PLACE = TensorType((), "i64")
"""The type of an index as a call takes it."""


def replacement(
    name_key: str,
    argument_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    scratch_bytes: int,
    packed_bytes: Mapping[int, int],
    in_place: Sequence[tuple[int, int]] = (),
    stacks: Mapping[int, Parts] = MappingProxyType({}),
) -> str:
    """Text of a StableHLO module whose `@main` is one call of the kernel bound to a key.

    Args:
        name_key: the key.
        argument_types, result_types: of the site, in the kernel's order.
        scratch_bytes: scratch to provide, enough for every kernel that will be bound to the key.
        packed_bytes: position of a constant argument -> bytes of its packed form.
        in_place: (result, argument) for each result that lies in the memory of an argument; where
            that is still read, XLA copies it first.
        stacks: packed arguments of which a call reads one part, by position.

    Returns:
        A module whose `@main` takes the site's arguments; then, in the order of their positions,
        the index of each stack; and then one `tensor<Nxui8>` for each packed argument, which goes
        into the call in place of the argument.
    """
    ensure_registered()
    packed, stacked, count = sorted(packed_bytes), sorted(stacks), len(argument_types)
    extra = [_packed(packed_bytes[p], stacks.get(p)) for p in packed]
    types = [*argument_types, *(stacks[p].index for p in stacked), *extra]
    operands = [(f"%a{i}", kind) for i, kind in enumerate(argument_types)]
    for i, position in enumerate(packed, count + len(stacked)):
        operands[position] = f"%a{i}", types[i]
    places = {p: f"%a{count + i}" for i, p in enumerate(stacked)}
    lines = [x for p in packed for x in _part(p, places.get(p), stacks.get(p))] if stacks else []
    operands += [(f"%part{p}", _PLACE) for p in packed] if stacks else []
    produced = [*result_types, *([TensorType((scratch_bytes,), "ui8")] if scratch_bytes else [])]
    call = _custom_call(
        name_key, scratch_bytes, operands, produced, in_place, has_stacks=bool(stacks)
    )
    return _module(types, result_types, (*lines, call), len(produced))


def _packed(size: int, stack: Parts | None) -> TensorType:
    """The bytes of a packed form, or of all those that follow one another in a stack."""
    return TensorType((stack.bytes(size) if stack is not None else size,), "ui8")


def _module(
    types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    lines: Iterable[str],
    produced: int,
) -> str:
    """A module whose `@main` has these lines, and gives the first of what the call produced."""
    parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    outputs = ", ".join(map(str, result_types))
    values = _values(len(result_types), produced)
    end = f"return {values} : {outputs}" if result_types else "return"
    return (
        "module {\n"
        f"  func.func public @main({parameters}) -> ({outputs}) {{\n"
        + "".join(f"    {line}\n" for line in (*lines, end))
        + "  }\n}\n"
    )


def _part(position: int, place: str | None, stack: Parts | None) -> list[str]:
    """Lines that bring the index of a stack into the range of its parts, as `%part<position>`."""
    if stack is None:
        return [f"%part{position} = stablehlo.constant dense<0> : {_PLACE}"]
    return [
        f"%first{position} = stablehlo.constant dense<0> : {_PLACE}",
        f"%last{position} = stablehlo.constant dense<{stack.count - 1}> : {_PLACE}",
        f"%wide{position} = stablehlo.convert {place} : ({stack.index}) -> {_PLACE}",
        f"%part{position} = stablehlo.clamp %first{position}, %wide{position}, %last{position} "
        f": {_PLACE}",
    ]


def _custom_call(
    key: str,
    scratch_bytes: int,
    operands: Sequence[tuple[str, TensorType]],
    result_types: Sequence[TensorType],
    in_place: Sequence[tuple[int, int]],
    *,
    has_stacks: bool,
) -> str:
    names = ", ".join(name for name, _ in operands)
    operand_types = [kind for _, kind in operands]
    inputs = ", ".join(map(str, operand_types))
    outputs = ", ".join(map(str, result_types))
    produced = f"%r:{len(result_types)} = " if len(result_types) > 1 else "%r = "
    stacks = ", stacks = 1 : i64" if has_stacks else ""
    config = f"{{key = {_quoted(key)}, scratch_bytes = {scratch_bytes} : i64{stacks}}}"
    return (
        f"{produced if result_types else ''}stablehlo.custom_call @{TARGET}({names}) "
        f"{{api_version = 4 : i32, backend_config = {config}, "
        f"operand_layouts = [{_row_major(operand_types)}], "
        f"result_layouts = [{_row_major(result_types)}]{_aliases(in_place, len(result_types))}}} "
        f": ({inputs}) -> ({outputs})"
    )


def _aliases(in_place: Sequence[tuple[int, int]], results: int) -> str:
    """The attribute that puts results into the memory of operands; "" where none is."""
    each = ", ".join(
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{r if results > 1 else ''}], "
        f"operand_index = {a}, operand_tuple_indices = []>"
        for r, a in in_place
    )
    return f", output_operand_aliases = [{each}]" if in_place else ""


def _values(used: int, produced: int) -> str:
    return "%r" if produced == 1 else ", ".join(f"%r#{i}" for i in range(used))


def _row_major(types: Sequence[TensorType]) -> str:
    return ", ".join(row_major_text(len(t.shape)) for t in types)


def _quoted(text: str) -> str:
    """A string of MLIR: what is not plain ASCII as two hex digits a byte."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return f'"{"".join(plain)}"'

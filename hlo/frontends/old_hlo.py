"""HLO text of 2018, as XLA.jl and TensorFlow 1.11 printed it, in the syntax of today's parser.

Operations were renamed since, attributes too, and a few operations took other operands.  The rules
follow the printer of that time; a text that needs none of them is left as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_SHAPE = r"\w+\[[\d, ]*\](?:\{[\d, ]*\})?"
_NAME = r"%?[\w.\-]+"
_VALUE = r"(?:\{(?:[^{}\"]|\"[^\"]*\"|\{[^{}]*\})*\}|\"[^\"]*\"|[\w\-.%]+)"
_INSTRUCTION = re.compile(
    rf"(?P<root>\bROOT\s+)?(?P<name>{_NAME})\s*=\s*(?P<shape>{_SHAPE})\s+(?P<opcode>[a-z][\w\-]*)"
    rf"\((?P<operands>[^()]*)\)(?P<attributes>(?:,\s*[\w\-]+={_VALUE})*)"
)
_ASSIGNMENT = re.compile(rf"(^|\s)((?:ROOT\s+)?{_NAME})=(?=(?:\w+\[|\())", re.MULTILINE)
_LAYOUT = re.compile(r"(\w+\[([\d, ]*)\])\{([\d, ]*)\}")
_OPERAND = re.compile(rf"(?:(?P<shape>{_SHAPE})\s+)?(?P<name>{_NAME})")
_LITERAL_SHAPE = re.compile(rf"(\bconstant\(\s*){_SHAPE}\s*")
COMPARISONS = {
    "equal-to": "EQ",
    "not-equal-to": "NE",
    "less-than": "LT",
    "less-than-or-equal-to": "LE",
    "greater-than": "GT",
    "greater-than-or-equal-to": "GE",
}
"""Operations that are one operation with a direction today."""
ATTRIBUTES = {
    "output_window_dims": "offset_dims",
    "elided_window_dims": "collapsed_slice_dims",
    "gather_dims_to_operand_dims": "start_index_map",
    "window_bounds": "slice_sizes",
}
"""Attributes of `gather` that have another name today."""


class Operand(NamedTuple):
    """What an instruction reads."""

    name: str
    shape: str
    """The shape as in `f32[2,3]`."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation: `name = shape opcode(operands), attributes`."""

    root: str
    name: str
    shape: str
    opcode: str
    operands: tuple[Operand, ...]
    attributes: str

    def text(self, opcode: str, operands: str, attributes: str = "") -> str:
        """The same value, computed by another operation."""
        return f"{self.root}{self.name} = {self.shape} {opcode}({operands}){attributes}"


def in_todays_syntax(text: str) -> str:
    """The module that a text of 2018 means, for today's parser.

    Args:
        text: of a module, with or without its first line.
    """
    text = _ASSIGNMENT.sub(r"\1\2 = ", text)
    text = _LAYOUT.sub(_fitting_layout, text)
    text = _LITERAL_SHAPE.sub(r"\1", text)
    for before, after in ATTRIBUTES.items():
        text = re.sub(rf"\b{before}=", f"{after}=", text)
    shapes = {_plain(m["name"]): m["shape"] for m in _INSTRUCTION.finditer(text)}
    comparators: dict[str, str] = {}
    text = _INSTRUCTION.sub(lambda match: _rewritten(match, shapes, comparators), text)
    return _with_computations(text, comparators)


def _fitting_layout(match: re.Match[str]) -> str:
    """A shape without its layout, where that has another number of dimensions."""
    sizes, order = (re.findall(r"\d+", match[i]) for i in (2, 3))
    return match[0] if len(sizes) == len(order) else match[1]


def _plain(name: str) -> str:
    return name.removeprefix("%")


def _rewritten(match: re.Match[str], shapes: Mapping[str, str], comparators: dict[str, str]) -> str:
    rule = RULES.get(match["opcode"])
    if rule is None:
        return match[0]
    operands = tuple(
        Operand(o["name"], o["shape"] or shapes.get(_plain(o["name"]), ""))
        for o in _OPERAND.finditer(match["operands"])
    )
    instruction = Instruction(
        match["root"] or "", match["name"], match["shape"], match["opcode"], operands,
        match["attributes"] or "",
    )  # fmt: skip
    return rule(instruction, comparators) or match[0]


def _names(operands: tuple[Operand, ...]) -> str:
    return ", ".join(o.name for o in operands)


def _compared(old: Instruction, _: dict[str, str]) -> str:
    direction = f", direction={COMPARISONS[old.opcode]}"
    return old.text("compare", _names(old.operands), direction + old.attributes)


def _of_one_device(old: Instruction, _: dict[str, str]) -> str:
    """The sum over all devices, of which there is one."""
    return old.text("copy", _names(old.operands))


def _counted(old: Instruction, _: dict[str, str]) -> str | None:
    if "iota_dimension" in old.attributes:
        return None
    return old.text("iota", "", ", iota_dimension=0" + old.attributes)


def _sliced(old: Instruction, _: dict[str, str]) -> str | None:
    """The start was one vector; it is a scalar for each dimension today."""
    start = old.operands[-1]
    rank = re.fullmatch(r"(\w+)\[(\d+)\](\{0\})?", start.shape)
    if rank is None:
        return None
    lines, scalars = list[str](), list[str]()
    for i in range(int(rank[2])):
        part, scalar = f"{_plain(old.name)}.start.{i}", f"{_plain(old.name)}.index.{i}"
        lines.append(f"{part} = {rank[1]}[1] slice({start.name}), slice={{[{i}:{i + 1}]}}")
        lines.append(f"{scalar} = {rank[1]}[] reshape({part})")
        scalars.append(scalar)
    names = ", ".join([*(o.name for o in old.operands[:-1]), *scalars])
    return "\n  ".join([*lines, old.text(old.opcode, names, old.attributes)])


def _sorted(old: Instruction, comparators: dict[str, str]) -> str | None:
    """An order was always ascending; it is a computation today."""
    if "to_apply" in old.attributes or len(old.operands) != 1:
        return None
    kind = old.shape.partition("[")[0]
    name = f"ascending_{kind}"
    comparators[name] = (
        f"{name} {{\n  lhs = {kind}[] parameter(0)\n  rhs = {kind}[] parameter(1)\n"
        "  ROOT less = pred[] compare(lhs, rhs), direction=LT\n}\n"
    )
    return old.text("sort", _names(old.operands), f"{old.attributes}, to_apply={name}")


Rule = Callable[[Instruction, dict[str, str]], str | None]
"""Writes an instruction anew; None leaves it.  The second argument takes computations that the new
text calls, by name."""
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(COMPARISONS, _compared),
    "cross-replica-sum": _of_one_device,
    "iota": _counted,
    "dynamic-slice": _sliced,
    "dynamic-update-slice": _sliced,
    "sort": _sorted,
}


def _with_computations(text: str, computations: Mapping[str, str]) -> str:
    """Computations stand in front of those that call them, behind the module's first line."""
    if not computations:
        return text
    header = re.match(r"\s*HloModule[^\n]*\n", text)
    begin = header.end() if header else 0
    return text[:begin] + "".join(computations.values()) + text[begin:]

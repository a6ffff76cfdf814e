"""Assembly as LLVM prints it for x86 (AT&T order: the destination comes last), and its loops."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

LABEL = re.compile(r"^(?P<name>[.\w$]+):")
FUNCTION = re.compile(r"^\s*\.type\s+(?P<name>[\w.$]+),@function")
MULTIPLY_ADDS = ("vfmadd", "vfnmadd", "vfmsub", "vfnmsub", "vpdp", "vdp")
"""How the names of instructions begin that multiply and add at once; `dp` adds several products."""

NUMBER = re.compile(r"\$-?(0x[0-9a-fA-F]+|\d+)")

STORES_NOTHING = ("cmp", "test", "vucomi", "vcomi", "bt", "prefetch")
"""Instructions whose last operand may be memory that they only read."""


@dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    operands: tuple[str, ...]
    text: str

    @property
    def is_multiply_add(self) -> bool:
        return self.name.startswith(MULTIPLY_ADDS)

    @property
    def touches_memory(self) -> bool:
        return not self.name.startswith(("lea", "nop")) and any("(" in o for o in self.operands)

    @property
    def stores(self) -> bool:
        reads_only = self.name.startswith(STORES_NOTHING)
        return self.touches_memory and "(" in self.operands[-1] and not reads_only

    @property
    def is_vector(self) -> bool:
        return any(o.startswith(("%xmm", "%ymm", "%zmm")) for o in self.operands)

    @property
    def is_jump(self) -> bool:
        return self.name.startswith("j")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, from its label to the jump back to it."""

    function: str
    label: str
    first: int
    last: int
    """Places in the function's instructions, both inclusive."""
    body: tuple[Instruction, ...]
    trips: int | None
    """Where a constant step and bound say it, the counter beginning at 0."""

    @property
    def multiply_adds(self) -> int:
        return sum(i.is_multiply_add for i in self.body)

    def holds(self, other: "Loop") -> bool:
        return self is not other and self.first <= other.first and other.last <= self.last


def hottest(text: str, entry: str = "kernel") -> Loop | None:
    """The innermost loop that executes most multiply-adds, by the trips that can be read off.

    Of the functions that `entry` reaches: packing ahead of time is no part of a call.  None where
    no loop multiplies and adds.
    """
    found: list[tuple[int, Loop | None]] = [(0, None)]
    reached = functions_of(text, entry)
    for name, lines in reached.items():
        loops = list(loops_of(name, lines))
        for loop in loops:
            if not any(loop.holds(other) for other in loops):
                around = [o.trips or 1 for o in loops if o.holds(loop)]
                found.append((loop.multiply_adds * (loop.trips or 1) * prod(around), loop))
    return max(found, key=lambda pair: pair[0])[1]


def functions_of(text: str, entry: str) -> Mapping[str, Sequence[str]]:
    """The lines of `entry` and of those functions whose address it or they take, by name."""
    every = _functions(text)
    reached, waiting = {}, [entry]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in every:
            continue
        reached[name] = every[name]
        named = set(re.findall(r"[\w.$]+", "\n".join(every[name])))
        waiting += [other for other in every if other in named]
    return reached


def _functions(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if declared := FUNCTION.match(line):
            name = declared["name"]
            found[name] = []
        elif name:
            found[name].append(line)
    return found


def loops_of(function: str, lines: Sequence[str]) -> Iterator[Loop]:
    """Each pair of a label and the last jump back to it."""
    labels: dict[str, int] = {}
    code: list[Instruction] = []
    back: dict[str, int] = {}
    for line in lines:
        if label := LABEL.match(line):
            labels[label["name"]] = len(code)
        elif instruction := parsed(line):
            if instruction.is_jump and instruction.operands[0] in labels:
                back[instruction.operands[0]] = len(code)
            code.append(instruction)
    for name, last in back.items():
        body = tuple(code[labels[name] : last + 1])
        yield Loop(function, name, labels[name], last, body, trips_of(body))


def parsed(line: str) -> Instruction | None:
    """None for what is no instruction: directives, comments, marks of inline assembly."""
    text = line.partition("#")[0].strip()
    if not text or text.startswith(".") or text.endswith(":"):
        return None
    name, _, rest = text.partition("\t")
    operands = re.split(r",\s*(?![^(]*\))", rest.strip()) if rest.strip() else []
    return Instruction(name, tuple(operands), text.replace("\t", " "))


def trips_of(body: Sequence[Instruction]) -> int | None:
    """The trips of a loop that ends on a comparison with a constant after a constant step; None
    where the loop is another.
    """
    if len(body) < 2 or not body[-2].name.startswith("cmp"):
        return None
    bound, counter = _constant(body[-2].operands[0]), body[-2].operands[1]
    steps = [s for i in body if i.operands and i.operands[-1] == counter and (s := _step(i))]
    if bound is None or bound <= 0 or len(steps) != 1 or steps[0] <= 0:
        return None
    return ceil(bound / steps[0])


def _step(instruction: Instruction) -> int | None:
    if instruction.name.startswith("inc"):
        return 1
    amount = _constant(instruction.operands[0])
    sign = {"add": 1, "sub": -1}.get(instruction.name[:3])
    return sign * amount if sign and amount else None


def _constant(operand: str) -> int | None:
    """None for a register, and for an address, which the linker knows."""
    return int(operand[1:], 0) if NUMBER.fullmatch(operand) else None

"""The loop of a kernel's assembly in which it spends its time, found in the text."""

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.?L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s+.*?(\.?L\w+)\s*(?:#.*|//.*)?$")
_MULTIPLY_ADD = re.compile(r"^\s+(?:vfn?m(?:add|sub)|fml[as]|bfdot|[su]dot|vdp|vpdp|tdp)\w*")
_INSTRUCTION = re.compile(r"^\s+[a-z]\w*")


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """Lines `first` to `last` of a text, counted from 0, with what stands in them."""

    first: int
    last: int
    instructions: int
    multiply_adds: int
    from_memory: int
    """Instructions with an operand in memory."""
    stack: int
    """Those of these instructions whose operand is on the stack: values that were spilled."""


def inner_loop(assembly: str) -> InnerLoop | None:
    """The innermost loop with the most multiply-adds; of several the longest.

    None where nothing jumps back.
    """
    lines = assembly.splitlines()
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    loops = [
        (labels[m[1]], n)
        for n, line in enumerate(lines)
        if (m := _JUMP.match(line)) and labels.get(m[1], n) < n
    ]
    innermost = [
        _counted(lines, first, last)
        for first, last in loops
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops)
    ]
    return max(innermost, key=lambda x: (x.multiply_adds, x.instructions), default=None)


def _counted(lines: list[str], first: int, last: int) -> InnerLoop:
    inside = [x for x in lines[first : last + 1] if _INSTRUCTION.match(x)]
    memory = [
        x for x in inside if re.search(r"\(%|\[(?:x\d|sp)", x) and not x.lstrip().startswith("lea")
    ]
    return InnerLoop(
        first=first,
        last=last,
        instructions=len(inside),
        multiply_adds=sum(_MULTIPLY_ADD.match(x) is not None for x in inside),
        from_memory=len(memory),
        stack=sum(re.search(r"\(%[re](?:sp|bp)\)|\[sp", x) is not None for x in memory),
    )


def window(length: int, loop: InnerLoop | None, most: int) -> tuple[int, int]:
    """Which lines of a text of so many are shown where `most` fit: around the loop, else the first.

    The end is not shown any more.
    """
    if length <= most:
        return 0, length
    middle = (loop.first + loop.last + 1) // 2 if loop else 0
    first = max(0, min(middle - most // 2, length - most))
    return first, first + most

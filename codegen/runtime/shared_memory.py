"""Where values lie that are not all alive at the same time, in one block of memory."""

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Life:
    """A value of some bytes, from the step that writes it to the last one that reads it."""

    bytes: int
    first: int
    last: int

    def meets(self, other: "Life") -> bool:
        return self.first <= other.last and other.first <= self.last


def laid_out(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """The offset of each value, and the bytes of the whole: values that live at the same time do
    not overlap.

    The largest is placed first, and each as low as it fits, so that a small block is used again and
    again and stays in the caches (the greedy order by size of Pisarchyk and Lee, "Efficient memory
    management for deep neural net inference", arXiv 2001.03288).
    """
    offsets = [0] * len(lives)
    placed = list[int]()
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].bytes, lives[i].first)):
        met = sorted((offsets[k], lives[k].bytes) for k in placed if lives[k].meets(lives[i]))
        offsets[i] = _lowest(met, lives[i].bytes)
        placed.append(i)
    ends = [offset + _padded(life.bytes) for offset, life in zip(offsets, lives, strict=True)]
    return tuple(offsets), max(ends, default=0)


def _lowest(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset at which so many bytes are free; `taken`: offsets in order, and sizes."""
    end = 0
    for offset, taken_bytes in taken:
        if offset - end >= _padded(size):
            break
        end = max(end, offset + _padded(taken_bytes))
    return end


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

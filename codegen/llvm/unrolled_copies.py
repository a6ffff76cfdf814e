"""The copies of a statement that loops write out, by their offsets from what stands around them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlotune.codegen.llvm.points import Lane, lane_of
from hlotune.schedules.ir.nest import Loop, StageNest


@dataclass(frozen=True, slots=True)
class Copy:
    offsets: Mapping[str, int]
    """The offsets from where the loops around it stand, by root."""
    lane: Lane | None = None
    fences: int = 0
    """Ahead of it: one for each step of a reduction that begins with it."""
    rolls: bool = False
    """Whether a fence stands ahead of it that lets values through."""


def copies(s: StageNest, first: int, sizes: Mapping[str, int]) -> tuple[Copy, ...]:
    """The copies of the loops from `first` on, in order; `sizes` are those of their roots."""
    found = [(Copy({}), sizes)]
    reduce = {a.name for a in s.stage.reduce}
    for loop in s.loops[first:]:
        if loop.kind == "vectorize":
            found = [(_vector(s, copy, loop.root, left), left) for copy, left in found]
        else:
            fence = loop.root in reduce
            found = [x for copy, left in found for x in _iterations(loop, copy, left, fence=fence)]
    return tuple(copy for copy, _ in found)


def _vector(s: StageNest, copy: Copy, root: str, left: Mapping[str, int]) -> Copy:
    return Copy(copy.offsets, lane_of(s, root, left[root]), copy.fences)


def _iterations(
    loop: Loop, copy: Copy, left: Mapping[str, int], *, fence: bool
) -> Iterator[tuple[Copy, Mapping[str, int]]]:
    """Iterations of a loop inside a copy of those around it, with what they leave of roots."""
    root, size, start = loop.root, left[loop.root], copy.offsets.get(loop.root, 0)
    for p in range(0, size, loop.step):
        fences = (0 if p else copy.fences) + fence
        offsets = {**copy.offsets, root: start + p}
        yield Copy(offsets, copy.lane, fences), {**left, root: min(loop.step, size - p)}

"""Values of kernels whose expressions are too large to be one: stages compute them once an element.

An expression counts what it reads twice twice.  Random bits double with each of their rounds, which
reads both halves of the round before twice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hlotune.hlo.graph import Graph
from hlotune.hlo.to_compute.expressions import ELEMENTWISE, short_name

LARGEST_EXPRESSION = 1024
"""Operations of an element, what is used twice counted twice.  What walks fewer axes than its
reader is computed once, ahead of it."""
DEEPEST_EXPRESSION = 128
"""Operations one behind the other: computes are made by functions that call themselves for each."""
MOST_WITH_STAGES = 1 << 40
"""The same of expressions that stages cut: what doubles more often takes too many of them."""
LARGE = 48
"""Operations of an element from which on a value that is read several times is a stage, in kernels
whose expressions are too large."""
MOVES = frozenset({"broadcast_in_dim", "reshape", "slice", "transpose", "reverse"})


@dataclass(frozen=True, slots=True)
class Extent:
    """The expression of a value, which reads no stages, or those of large values."""

    size: int
    depth: int
    staged_size: int
    staged_depth: int

    @property
    def is_small(self) -> bool:
        return self.size <= LARGEST_EXPRESSION and self.depth <= DEEPEST_EXPRESSION

    @property
    def fits(self) -> bool:
        return self.is_small or (
            self.size <= MOST_WITH_STAGES
            and self.staged_size <= LARGEST_EXPRESSION
            and self.staged_depth <= DEEPEST_EXPRESSION
        )

    @property
    def ahead(self) -> "Extent":
        """What those see that read it where it is computed ahead of them."""
        return replace(self, size=1, staged_size=1)

    def read_by(self, readers: int) -> "Extent":
        """What those see that read it."""
        if self.staged_size > LARGE and readers > 1:
            return Extent(self.size, self.depth, 1, 1)
        return self


def behind(read: Iterable[tuple[Extent, int, int]], size: int, depth: int) -> Extent:
    """The extent of an operation.

    Args:
        read: what it reads, how often, and how many operations lie between.
        size, depth: of the operation and of what it reads that is not counted otherwise.
    """
    staged_size, staged_depth = size, depth
    for extent, times, between in read:
        size, depth = size + extent.size * times, max(depth, extent.depth + between)
        staged_size += extent.staged_size * times
        staged_depth = max(staged_depth, extent.staged_depth + between)
    return Extent(size, depth + 1, staged_size, staged_depth + 1)


def large_values(graph: Graph) -> frozenset[int]:
    """The elementwise values of a kernel that are stages for their size; none where its
    expressions are small enough without them.

    Where one becomes a stage, so do all that are computed by then and read later: otherwise the
    stages behind would compute these again.
    """
    extents = _extents(graph)
    if all(e.is_small for e in extents.values()):
        return frozenset()
    last = {v: n for n, op in enumerate(graph.ops) for v in op.operands}
    readers = Counter(v for op in graph.ops for v in op.operands)
    sizes, found = dict[int, int](), set[int]()
    for n, op in enumerate(graph.ops):
        value = op.results[0] if op.results else -1
        if value not in extents:
            continue
        sizes[value] = sum(sizes.get(v, 0) for v in op.operands) + (short_name(op) in ELEMENTWISE)
        if sizes[value] > LARGE and readers[value] > 1:
            live = {
                v for v, size in sizes.items() if size > 1 and last.get(v, 0) > n and v not in found
            }
            found |= live
            sizes |= dict.fromkeys(live, 1)
    return frozenset(found)


def _extents(graph: Graph) -> dict[int, Extent]:
    """The extents of all elementwise values, without stages."""
    found = dict[int, Extent]()
    for op in graph.ops:
        name = short_name(op)
        if name in MOVES and op.operands[0] in found:
            read, types = found[op.operands[0]], graph.types
            enlarges = types[op.operands[0]].elements < types[op.results[0]].elements
            found[op.results[0]] = read.ahead if enlarges else read
        elif name in ELEMENTWISE:
            found[op.results[0]] = behind(
                [(found[v], 1, 0) for v in op.operands if v in found], 1, 0
            )
    return found

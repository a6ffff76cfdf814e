"""Which values of a kernel get stages of their own because their expressions are too large.

A value that is read twice is counted twice in the size of an expression.  The expression of random
bits doubles with each round, since each round reads both halves of the round before twice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hlotune.hlo.graph import Graph
from hlotune.hlo.to_compute.conversions import short_name
from hlotune.hlo.to_compute.expressions import ELEMENTWISE

LARGEST_EXPRESSION = 1024
"""The most operations for one element; an operation that is used twice counts twice.  Values over
fewer axes than their reader are computed once, ahead of it, and count once."""
DEEPEST_EXPRESSION = 128
"""The longest chain of operations: recursive functions make computes, one call an operation."""
MOST_WITH_STAGES = 1 << 40
"""The largest expression that is cut into stages: a larger one would need too many of them."""
LARGE = 48
"""A value with more operations than this that is read several times becomes a stage, in a kernel
whose expressions are too large."""
MOVES = frozenset({"broadcast_in_dim", "reshape", "slice", "transpose", "reverse"})


@dataclass(frozen=True, slots=True)
class Extent:
    """Size and depth of a value's expression, without stages and with stages of large values."""

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
        """What a reader counts where this value is computed once, ahead of the reader."""
        return replace(self, size=1, staged_size=1)

    def read_by(self, readers: int) -> "Extent":
        """The extent that each of so many readers counts: 1 where the value becomes a stage."""
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

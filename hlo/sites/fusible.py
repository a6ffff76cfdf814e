"""Which operations of a region go into kernels without a contraction, and how.

An operation is a *member* of one kernel, or *free*: copied into every kernel that reads it, because
it is a constant, an index map (a broadcast, a reshape, a slice), or computed from small tensors
alone.  A free operation stays in the program for its readers outside of kernels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import cast

from hlotune.hlo.constants import integers
from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.region import Region, is_cloned_constant, reads
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.cumulative import WINDOW, cumulative
from hlotune.hlo.to_compute.reductions import (
    SCATTERED,
    parts_of,
    plain_operation,
    unit_reductions,
)
from hlotune.hlo.to_compute.short_axes import FEWEST_POINTS, MOST_TERMS
from hlotune.hlo.to_compute.updates import UPDATES, box_start, merges
from hlotune.hlo.to_compute.windows import selection
from hlotune.schedules.dtypes import accumulator, is_float
from hlotune.schedules.ir.operations import FLOATS, INTEGERS, OPERATIONS, TRUTHS

INDEX_MAPS = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.slice"})
"""Copied into every kernel that reads them, whoever else reads them."""
MOVES = frozenset({
    "stablehlo.transpose", "stablehlo.reverse", "stablehlo.pad", "stablehlo.concatenate",
    "stablehlo.dynamic_slice",
})  # fmt: skip
"""Operations that move elements and may be members."""
BROADCAST, RESHAPE = "stablehlo.broadcast_in_dim", "stablehlo.reshape"
GATHER = "stablehlo.gather"
MADE = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim"})
TURNS = frozenset({"stablehlo.transpose", "stablehlo.reverse"})
REDUCE = "stablehlo.reduce"
SCATTER = "stablehlo.select_and_scatter"
WINDOWS = frozenset({WINDOW, SCATTER})
REDUCTIONS = WINDOWS | {REDUCE}
MOST_TAPS = 1024
"""Elements of the largest window that is read whole for each result: sums over larger ones had
better be made of one another."""
MOST_COPIED = 64
"""Operations of an element, what is used twice counted twice: values that take more of them are
computed once, not by every kernel that reads them."""


@dataclass
class Fusible:
    """What may be fused in a region where some operations are `owned` by other kernels.

    `cloned` operations are those that kernels around contractions compute for themselves, and
    `fused` all members of these.  What is free must not depend on which kernels are chosen in the
    end, so both are those of the largest groups, whatever is owned.
    """

    region: Region
    owned: frozenset[int]
    fused: frozenset[int] = frozenset()
    cloned: frozenset[int] = frozenset()

    @cached_property
    def views(self) -> frozenset[int]:
        """Reductions that are reshapes."""
        return unit_reductions(self.region.graph)

    @cached_property
    def facts(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """For each operation whether it may be in a kernel, and whether it is free there."""
        ops = self.region.graph.ops
        fits = [i not in self.owned and self._fits(op) for i, op in enumerate(ops)]
        alone = [f and i not in self.fused for i, f in enumerate(fits)]
        free = [f and self._is_free(i, alone) for i, f in enumerate(fits)]
        return tuple(fits), tuple(free)

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """For each operation how many a kernel has for an element of what is computed from small
        tensors; beginning anew behind those that are more than a kernel copies."""
        found: list[int] = []
        for op in self.region.graph.ops:
            behind = [found[p] for v in op.operands if (p := self.region.producers.get(v, -1)) >= 0]
            cost = sum(n for n in behind if n <= MOST_COPIED)
            if op.name in KERNELS_ELEMENTWISE and self.region.is_narrow(op.results[0]):
                cost += 1
            elif op.name not in INDEX_MAPS and op.name not in TURNS:
                cost = 0
            found.append(cost)
        return tuple(found)

    def is_free(self, index: int) -> bool:
        return self.facts[1][index]

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The operations that may be members, in order."""
        fits, free = self.facts
        return tuple(i for i in range(len(fits)) if fits[i] and not free[i])

    def accumulates(self, op: Op) -> bool:
        """Whether an operation is a cumulative reduction."""
        return cumulative(self.region.graph, op) is not None

    def all_sources(self) -> list[set[int]]:
        """For each operation those that it waits for, free ones left out: those behind them."""
        found = list[set[int]]()
        for op in self.region.graph.ops:
            own = set[int]()
            for value in reads(op):
                producer = self.region.producers.get(value)
                if producer is not None:
                    own |= found[producer] if self.is_free(producer) else {producer}
            found.append(own)
        return found

    def copies(self, members: Iterable[int]) -> frozenset[int]:
        """The free operations that a kernel of some members has copies of."""
        graph, found = self.region.graph, set[int]()
        waiting = [v for m in members for v in graph.ops[m].operands]
        while waiting:
            producer = self.region.producers.get(waiting.pop())
            if producer is not None and self.is_free(producer) and producer not in found:
                found.add(producer)
                waiting.extend(graph.ops[producer].operands)
        return frozenset(found)

    def leaves(self, value: int, members: frozenset[int]) -> bool:
        """Whether others than some members read a value, itself or by way of free operations."""
        waiting, seen = [value], set[int]()
        while waiting:
            current = waiting.pop()
            if current in self.region.graph.results:
                return True
            for user in self.region.users[current] - seen:
                seen.add(user)
                if self.is_free(user):
                    waiting.extend(self.region.graph.ops[user].results)
                elif user not in members:
                    return True
        return False

    def _fits(self, op: Op) -> bool:
        if not op.results or not self.region.has_kernels(op):
            return False
        if 0 in [n for v in (*op.operands, *op.results) for n in self.region.type(v).shape]:
            return False
        if op.name == "stablehlo.constant":
            return is_cloned_constant(op)
        if op.name == REDUCE or self.accumulates(op):
            return is_reduction(op)
        if op.name == SCATTER:
            taps = prod(numbers(op, "window_dimensions"))
            return selection(op) is not None and taps <= MOST_TAPS
        if op.name == WINDOW:
            return is_reduction(op) and is_window(op, self.region.type(op.operands[0]).shape)
        if op.name in INDEX_MAPS or op.name in MOVES or op.name in ("stablehlo.iota", GATHER):
            return True
        if merges(op):
            return is_merging_scatter(self.region, op)
        if op.name in UPDATES:
            return box_start(self.region.graph, op, self._makers) is not None
        return op.name in KERNELS_ELEMENTWISE and self._computes(op)

    def _computes(self, op: Op) -> bool:
        """Whether computes have the operation for its types."""
        if op.regions or (op.name == "stablehlo.compare" and op["compare_type"] == "TOTALORDER"):
            return False
        kinds = OPERATIONS[op.name.partition(".")[2]].types
        return kind_of(self.region.type(op.operands[-1]).dtype) in kinds

    def _is_free(self, index: int, fits: list[bool]) -> bool:
        op = self.region.graph.ops[index]
        if index in self.views or is_cloned_constant(op):
            return True
        if op.name in INDEX_MAPS and index not in self.cloned:
            return not self._trims(op) and not (
                self._spreads(op) and self._is_needed_whole(op, fits)
            )
        if op.name == "stablehlo.concatenate" and self._is_index(op):
            return True
        if index in self.cloned:
            return not reduces(self.region.graph, op)
        light = op.name in TURNS or (
            op.name in KERNELS_ELEMENTWISE and self.region.is_narrow(op.results[0])
        )
        light = light and self.costs[index] <= MOST_COPIED
        return light and not self._is_needed_whole(op, fits)

    @cached_property
    def _makers(self) -> dict[int, Op]:
        return {r: op for op in self.region.graph.ops for r in op.results}

    def _is_index(self, op: Op) -> bool:
        """Whether a value is known, and read by updates alone."""
        graph, users = self.region.graph, self.region.users[op.results[0]]
        known = integers(graph, op.results[0], self._makers) is not None
        return known and bool(users) and all(graph.ops[u].name in UPDATES for u in users)

    def _trims(self, op: Op) -> bool:
        """Whether an operation alone reads what windows scatter: borders that JAX pads and cuts."""
        maker = self.region.producer(op.operands[0])
        alone = self.region.users[op.operands[0]] == {self.region.producers[op.results[0]]}
        return (
            op.name == "stablehlo.slice" and maker is not None and maker.name == SCATTER and alone
        )

    def _spreads(self, op: Op) -> bool:
        """Whether an operation writes elements several times, and not one number everywhere."""
        if op.name != BROADCAST:
            return False
        few, many = (self.region.type(v).elements for v in (op.operands[0], op.results[0]))
        return 1 < few < many

    def _is_needed_whole(self, op: Op, fits: list[bool]) -> bool:
        """Whether it is a result, or an operation that stays outside of kernels reads it, itself or
        reshaped."""
        waiting = list(op.results)
        while waiting:
            value = waiting.pop()
            users = self.region.users[value]
            if value in self.region.graph.results or not all(fits[u] for u in users):
                return True
            ops = (self.region.graph.ops[u] for u in users)
            waiting += [r for user in ops if user.name == RESHAPE for r in user.results]
        return False


def is_merging_scatter(region: Region, op: Op) -> bool:
    """Whether a scatter merges rows or single elements, of a type that is computed in, into an
    operand that is made here or no larger than the updates: XLA may merge into a larger one in its
    own memory."""
    if len(op.results) != 1 or op["input_batching_dims"]:
        return False
    kind, updates = region.type(op.results[0]), region.type(op.operands[2])
    parts = parts_of(op.regions[0], (kind.dtype,))
    maker = region.producers.get(op.operands[0])
    made = maker is not None and region.graph.ops[maker].name in MADE
    return (
        accumulator(kind.dtype) == kind.dtype != "i1"
        and parts is not None
        and parts[0] in SCATTERED
        and (made or updates.elements >= kind.elements)
    )


def reduces(graph: Graph, op: Op) -> bool:
    """Whether an operation reduces, more than a few terms for each of many results."""
    return op.name in REDUCTIONS and terms_written_out(graph, op) == 0


def terms_written_out(graph: Graph, op: Op) -> int:
    """The terms of each result of a reduction that is written out (`short_axes.py`), and so is an
    elementwise operation for all that kernels are cut by; 0 for all other operations.

    Sums over the coordinates of points in the plane, or in space, are such reductions.
    """
    if op.name != REDUCE or len(op.results) != 1 or plain_operation(op.regions[0]) is None:
        return 0
    shape = graph.types[op.operands[0]].shape
    terms = prod(shape[d] for d in cast(tuple[int, ...], op["dimensions"]))
    many = graph.types[op.results[0]].elements >= FEWEST_POINTS
    return terms if terms <= MOST_TERMS and many else 0


def is_reduction(op: Op) -> bool:
    """Whether a reduction's region is elementwise operations on its parts."""
    inner = [o for region in op.regions for o in region.ops]
    plain = all(o.name in KERNELS_ELEMENTWISE or o.name == "stablehlo.constant" for o in inner)
    return plain and not any(region.captures for region in op.regions)


def is_window(op: Op, shape: Sequence[int]) -> bool:
    """Whether a windowed reduction reads neighbours, few enough of them, and not all before it.

    JAX writes cumulative sums as windows as long as their axis.
    """
    window, strides = numbers(op, "window_dimensions"), numbers(op, "window_strides")
    padding = cast(tuple[tuple[int, int], ...], op["padding"])
    cumulative = any(
        n == size > 1 and stride == 1 and sum(pads) == n - 1
        for n, size, stride, pads in zip(window, shape, strides, padding, strict=True)
    )
    plain = set(numbers(op, "base_dilations")) == {1}
    return plain and not cumulative and prod(window) <= MOST_TAPS


def kind_of(dtype: str) -> str:
    return FLOATS if is_float(dtype) else TRUTHS if dtype == "i1" else INTEGERS

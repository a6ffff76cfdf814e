"""Groups of elementwise operations and reductions: the largest that are one kernel.

Every operation that may be a member begins as a group of its own.  Along each use, and then where
two read the same tensor, groups become one if they walk the same axes: those of the one are among
those of the other, and their reductions go over the same ones.  Groups never wait for one another
in a ring.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.apart import apart
from hlotune.hlo.sites.fusible import (
    REDUCE,
    REDUCTIONS,
    WINDOWS,
    Fusible,
    reduces,
)
from hlotune.hlo.sites.region import Group, Pattern, Region
from hlotune.hlo.to_compute.axis_names import merged_names
from hlotune.hlo.to_compute.cumulative import WINDOW, cumulative
from hlotune.hlo.to_compute.large_values import Extent, behind
from hlotune.hlo.to_compute.updates import UPDATES, merges


@dataclass(slots=True)
class _Node:
    """Operations that are one kernel, or that stay together outside of ours."""

    members: set[int]
    axes: frozenset[str] = frozenset()
    reduced: frozenset[str] = frozenset()
    grows: bool = True
    sources: set[int] = field(default_factory=set)
    """Operations outside that it waits for."""
    users: set[int] = field(default_factory=set)
    """Operations outside that wait for it."""
    extents: dict[int, Extent] = field(default_factory=dict)
    """For each member, how many operations one of its elements takes, where reductions are read as
    values, and how many of them depend on one another in a chain.
    """


@dataclass(frozen=True, slots=True)
class _Way:
    """Free operations between an operation and what it reads."""

    size: int
    """How many these are, where an operation that is used twice counts twice."""
    depth: int
    """How many of them depend on one another in a chain."""
    sources: dict[int, tuple[int, int]]
    """For each operation at the other end, how often it is read, and how many operations are in
    between.
    """


def fused(fusible: Fusible, others: Sequence[Group] = ()) -> list[Group]:
    """The largest groups, in order; `others` are groups that exist already."""
    growth = _Growth(fusible)
    for group in others:
        growth.fix(group.members)
    order = fusible.region.order.__getitem__
    for source, index in growth.summed_alone():
        growth.join(source, index)
    for index in sorted(fusible.members, key=order):
        for source in sorted(growth.sources[index], key=order):
            growth.join(source, index)
    for together in growth.reading_alike():
        for a, b in pairwise(together):
            growth.join(a, b)
    return growth.groups()


class _Growth:
    """Nodes of a region that become fewer and larger."""

    def __init__(self, fusible: Fusible) -> None:
        self.fusible, self.region = fusible, fusible.region
        graph = self.region.graph
        self.names = self.region.axis_names()
        self.merged = merged_names(graph, self.names)
        self.sources = fusible.all_sources()
        self.ways = self._ways()
        self.apart = apart(fusible, self.sources)
        users = defaultdict[int, set[int]](set)
        for i, found in enumerate(self.sources):
            if not fusible.is_free(i):
                for source in found:
                    users[source].add(i)
        candidates = set(fusible.members)
        axes = [self._axes(i, i in candidates) for i in range(len(graph.ops))]
        self.walked = [walked for walked, _ in axes]
        """The axes that each operation walks."""
        self.nodes = [
            _Node({i}, *axes[i], i in candidates, set(s), users[i], self._alone(i))
            for i, s in enumerate(self.sources)
        ]
        """By operation; several operations have one node."""

    def _axes(self, index: int, grows: bool) -> tuple[frozenset[str], frozenset[str]]:
        """The axes that an operation walks, and those that it reduces over."""
        op = self.region.graph.ops[index]
        if not grows:
            return frozenset(), frozenset()
        value = op.operands[0] if op.name in REDUCTIONS else op.results[0]
        if merges(op):
            value = op.operands[2]
        names, shape = self.names[value], self.region.type(value).shape
        axes = self._parts(name for name, n in zip(names, shape, strict=True) if n > 1)
        if op.name in WINDOWS:
            return axes, frozenset(_windows(op, names))
        along = op.name == REDUCE and reduces(self.region.graph, op)
        dimensions = cast(tuple[int, ...], op["dimensions"]) if along else ()
        return axes, self._parts(names[d] for d in dimensions if shape[d] > 1)

    def _parts(self, names: Iterable[str]) -> frozenset[str]:
        """The axes of those names; of one that a reshape makes of others, these."""
        found, waiting, seen = set[str](), [*names], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                parts = self.merged.get(name, ())
                waiting += parts
                found |= set() if parts else {name}
        return frozenset(found)

    def fix(self, members: Iterable[int]) -> None:
        """Makes one node of operations that are one kernel already."""
        first, *rest = sorted(members)
        for other in rest:
            self._merge(self.nodes[first], self.nodes[other])
        self.nodes[first].grows = False

    def join(self, a: int, b: int) -> None:
        """Makes one node of those of two operations, where they fit."""
        first, second = self.nodes[a], self.nodes[b]
        if first is second or not first.grows or not second.grows:
            return
        alone = self._accumulates(first) or self._waits_for_scatter(first, second)
        if alone or not _fit(first, second):
            return
        members = first.members | second.members
        if any(m in members and not members.isdisjoint(rs) for m, rs in self.apart.items()):
            return
        changed = self._extents(first, second)
        if not all(extent.fits for extent in changed.values()):
            return
        if self._leads(first, second) or self._leads(second, first):
            return
        self._merge(first, second)
        first.extents.update(changed)

    def _accumulates(self, node: _Node) -> bool:
        """Whether a cumulative reduction is in it: its results go to memory, for other kernels."""
        return any(self.fusible.accumulates(self.region.graph.ops[m]) for m in node.members)

    def _waits_for_scatter(self, a: _Node, b: _Node) -> bool:
        """Whether one reads what a scatter of the other stores: it is there behind all updates."""
        read = (a.members & b.sources) | (b.members & a.sources)
        return any(merges(self.region.graph.ops[m]) for m in read)

    def _merge(self, into: _Node, other: _Node) -> None:
        if into is other:
            return
        into.members |= other.members
        into.axes, into.reduced = into.axes | other.axes, into.reduced | other.reduced
        into.sources = (into.sources | other.sources) - into.members
        into.users = (into.users | other.users) - into.members
        into.extents.update(other.extents)
        for member in other.members:
            self.nodes[member] = into

    def _alone(self, index: int) -> dict[int, Extent]:
        """The extent of an operation by itself."""
        results = self.region.graph.ops[index].results
        way = self.ways[results[0]] if results else _Way(0, 0, {})
        return {index: behind((), 1 + way.size, way.depth)}

    def _extents(self, a: _Node, b: _Node) -> dict[int, Extent]:
        """The extents of members of two nodes that are others where both are one."""
        early, late = (a, b) if a.sources.isdisjoint(b.members) else (b, a)
        apart = early.sources.isdisjoint(late.members)
        members, ops = (late.members if apart else a.members | b.members), self.region.graph.ops
        found = dict[int, Extent]()
        for m in sorted(members):
            way = self.ways[ops[m].results[0]]
            read = list[tuple[Extent, int, int]]()
            for s in self.sources[m]:
                known = found.get(s) or (early.extents.get(s) if apart else None)
                if known is not None and ops[s].name not in REDUCTIONS:
                    times, between = way.sources.get(s, (1, 0))
                    readers = max(times, len(self.region.users[ops[s].results[0]]))
                    is_value = ops[s].name in KERNELS_ELEMENTWISE
                    seen = known.read_by(readers) if is_value else known
                    ahead = self.walked[s] < self.walked[m]
                    read.append((seen.ahead if ahead else seen, times, between))
            found[m] = behind(read, 1 + way.size, way.depth)
        return found

    def _ways(self) -> dict[int, _Way]:
        """For the result of each operation, the way through free operations to what it reads."""
        graph, producers = self.region.graph, self.region.producers
        found = dict[int, _Way]()
        for op in graph.ops:
            size, depth, sources = 0, 0, dict[int, tuple[int, int]]()
            for operand in op.operands:
                producer = producers.get(operand)
                if producer is None:
                    continue
                ends, between = {producer: (1, 0)}, 0
                if self.fusible.is_free(producer):
                    way, between = found[operand], 1
                    ends = way.sources
                    size += way.size + (graph.ops[producer].name in KERNELS_ELEMENTWISE)
                    depth = max(depth, way.depth + 1)
                for end, (times, deep) in ends.items():
                    before, deepest = sources.get(end, (0, 0))
                    sources[end] = before + times, max(deepest, deep + between)
            found.update(dict.fromkeys(op.results, _Way(size, depth, sources)))
        return found

    def _leads(self, a: _Node, b: _Node) -> bool:
        """Whether `b` waits for `a` by way of a third node."""
        last = max(b.members)
        seen = {id(a), id(b)}
        waiting = [n for u in a.users if (n := self.nodes[u]) is not b]
        while waiting:
            node = waiting.pop()
            if id(node) in seen or min(node.members) > last:
                continue
            seen.add(id(node))
            for user in node.users:
                after = self.nodes[user]
                if after is b:
                    return True
                waiting.append(after)
        return False

    def summed_alone(self) -> Iterable[tuple[int, int]]:
        """Elementwise operations that one reduction reads, and nobody else, with that reduction,
        where another one of the same tensor reads what they read.

        In a kernel with that other reduction they would be stored, and read by one of the two; so
        both read the same tensor, and are one kernel if they go over the same axes.
        """
        order, ops = self.region.order.__getitem__, self.region.graph.ops
        for source in sorted(self.fusible.members, key=order):
            users = self.nodes[source].users
            if not reduces(self.region.graph, ops[source]) and len(users) == 1:
                (user,) = users
                if any(self._both_reduce(user, x) for x in self._readers_beside(source)):
                    yield source, user

    def _readers_beside(self, index: int) -> set[int]:
        """Other operations that read what an operation reads."""
        found = {u for v in self.region.graph.ops[index].operands for u in self.region.users[v]}
        return found - {index}

    def _both_reduce(self, a: int, b: int) -> bool:
        """Whether two operations are reductions of values of the same axes."""
        graph = self.region.graph
        both = all(reduces(graph, graph.ops[i]) for i in (a, b))
        first, second = self.nodes[a], self.nodes[b]
        return both and first.axes == second.axes and first.grows and second.grows

    def reading_alike(self) -> Iterable[list[int]]:
        """Members that read the same tensor, of nodes that might be one."""
        readers = defaultdict[int, list[int]](list)
        for m in sorted(self.fusible.members, key=self.region.order.__getitem__):
            if self._accumulates(self.nodes[m]):
                continue
            copies = self.fusible.copies([m])
            own = {*self.region.graph.ops[m].operands}
            own |= {v for c in copies for v in self.region.graph.ops[c].operands}
            for value in own:
                producer = self.region.producers.get(value)
                is_read = producer is None or not self.fusible.is_free(producer)
                if is_read and self.region.type(value).elements > 1:
                    readers[value].append(m)
        order = self.region.order.__getitem__
        yield from sorted(readers.values(), key=lambda ms: [order(m) for m in ms])

    def groups(self) -> list[Group]:
        nodes = {id(n): n for n in self.nodes if n.grows}
        found = [group_of(self.region, n.members) for n in nodes.values()]
        kept = [g for g in found if is_worth_a_kernel(self.region.graph, g.members)]
        return sorted(kept, key=lambda g: self.region.order[g.root])


def group_of(region: Region, members: Iterable[int]) -> Group:
    """A group of some members, grown from the last of them."""
    found = frozenset(members)
    root = max(found, key=region.order.__getitem__)
    return Group(root, found, pattern_of(region.graph, found))


def _windows(op: Op, names: Sequence[str]) -> Iterable[str]:
    """What a windowed reduction goes over along each dimension: equal windows only fit together."""
    kinds = ["window_dimensions", "window_strides", "padding"]
    kinds += ["window_dilations"] if op.name == WINDOW else []
    for d, name in enumerate(names):
        parts = [cast(tuple[object, ...], op[kind])[d] for kind in kinds]
        if parts[0] != 1:
            yield f"{name} by {parts}"


def _fit(a: _Node, b: _Node) -> bool:
    """Whether two nodes walk the same axes, and reduce over the same ones."""
    nested = a.axes <= b.axes or b.axes <= a.axes
    return nested and (not a.reduced or not b.reduced or a.reduced == b.reduced)


def is_worth_a_kernel(graph: Graph, members: Iterable[int]) -> bool:
    """Whether operations do more than to put boxes into a tensor, which XLA may do in place."""
    return any(graph.ops[m].name not in UPDATES or merges(graph.ops[m]) for m in members)


def pattern_of(graph: Graph, members: Iterable[int]) -> Pattern:
    """`rows` where a value as large as what is reduced waits for a reduction."""
    members = set(members)
    reductions = [m for m in members if reduces(graph, graph.ops[m])]
    if any(cumulative(graph, graph.ops[m]) for m in reductions):
        return "cumulative"
    if any(graph.ops[m].name in WINDOWS for m in reductions):
        return "window"
    if not reductions:
        return "elementwise"
    largest = max(graph.types[graph.ops[m].operands[0]].elements for m in reductions)
    wide = levels(graph, members)
    full = any(
        level and graph.types[graph.ops[m].results[0]].elements >= largest
        for m, level in wide.items()
        if graph.ops[m].name != REDUCE
    )
    deep = any(wide[m] for m in reductions)
    return "rows" if full or deep else "reduction"


def levels(graph: Graph, members: Iterable[int]) -> dict[int, int]:
    """For each member how many reductions of the group it waits for, one after the other."""
    found = dict.fromkeys(sorted(members), 0)
    ends = {m for m in found if reduces(graph, graph.ops[m])}
    behind = dict[int, int]()  # of values that wait for some
    for i in range(min(ends, default=0), max(found) + 1 if ends else 0):
        op, level = graph.ops[i], 0
        for v in op.operands:
            if v in behind and behind[v] > level:
                level = behind[v]
        if i in found:
            found[i] = level
        if level := level + (i in ends):
            behind.update(dict.fromkeys(op.results, level))
    return found


def parts(region: Region, group: Group) -> list[Group]:
    """The group cut behind its reductions; itself where it has none that others wait for."""
    by_level = defaultdict[int, set[int]](set)
    for member, level in levels(region.graph, group.members).items():
        by_level[level].add(member)
    if len(by_level) < 2:
        return [group]
    return [group_of(region, members) for _, members in sorted(by_level.items())]

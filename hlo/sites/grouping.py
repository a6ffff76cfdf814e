"""Which operations go with an anchor (a dot or a convolution) into one kernel.

An anchor's group grows downwards first: elementwise operations of the anchor's own shape, as long
as everything else they read can be computed without waiting for the group.  An operation between
two anchors belongs to the producer; where two anchors meet, to the deeper one.  Then it grows
upwards, over elementwise operations that nothing else uses. Scalars, broadcasts and small vectors
are not members: they are cloned into every kernel that reads them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hlotune.hlo.canonical import INLINE_ELEMENTS, places
from hlotune.hlo.graph import Graph, Literal, Op, TensorType
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.schedules.dtypes import has_kernels

ANCHORS = ("stablehlo.dot_general", "stablehlo.convolution")
TURNS = frozenset({"stablehlo.reverse", "stablehlo.transpose"})
"""Another order of what an operand holds: to a kernel no work, but other strides."""
SMALL_ELEMENTS = 4096
"""Vectors up to this size, or an eighth of the anchor's result, are computed in every kernel."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operations by index: the anchor, what stands before it and what stands after it."""

    anchor: int
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    @property
    def members(self) -> frozenset[int]:
        return self.before | self.after | {self.anchor}


@dataclass(slots=True)
class Region:
    """What growing asks about one graph.  Sets of operations are bits of an int."""

    graph: Graph
    producers: dict[int, int] = field(default_factory=dict)
    users: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    ancestors: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    """Longest way from an argument."""
    order: dict[int, int] = field(default_factory=dict)
    """Places in the canonical text: where equals meet they decide, not the order of statements."""
    narrow: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = places(self.graph)
        for i, op in enumerate(self.graph.ops):
            above = depth = 0
            for value in reads(op):
                self.users[value].add(i)
                producer = self.producers.get(value)
                if producer is not None:
                    above |= self.ancestors[producer] | 1 << producer
                    depth = max(depth, self.depths[producer] + 1)
            self.ancestors.append(above)
            self.depths.append(depth)
            self.producers.update(dict.fromkeys(op.results, i))

    def type(self, value: int) -> TensorType:
        return self.graph.types[value]

    def has_kernels(self, op: Op) -> bool:
        """Whether kernels may have the element types of all that an operation reads and gives."""
        return all(has_kernels(self.type(v).dtype) for v in (*op.operands, *op.results))

    def producer(self, value: int) -> Op | None:
        index = self.producers.get(value)
        return None if index is None else self.graph.ops[index]

    def is_narrow(self, value: int) -> bool:
        """Whether a value is elementwise of constants and broadcasts of smaller tensors."""
        if value not in self.narrow:
            op = self.producer(value)
            self.narrow[value] = op is not None and (
                is_cloned_constant(op)
                or self.enlarges(op)
                or (op.name in KERNELS_ELEMENTWISE and all(self.is_narrow(v) for v in op.operands))
            )
        return self.narrow[value]

    def enlarges(self, op: Op) -> bool:
        """Whether an operation is a broadcast of a smaller tensor."""
        if op.name != "stablehlo.broadcast_in_dim":
            return False
        return self.type(op.operands[0]).elements < self.type(op.results[0]).elements

    def waits_for(self, value: int, members: int) -> bool:
        """Whether a value is computed by, or from, one of the members."""
        index = self.producers.get(value)
        return index is not None and bool((self.ancestors[index] | 1 << index) & members)


def reads(op: Op) -> Iterable[int]:
    """The values that an operation reads, also from inside its regions."""
    yield from op.operands
    for region in op.regions:
        yield from (outer for _, outer in region.captures)


def groups(region: Region) -> list[Group]:
    """The largest group of each anchor, in order; none share operations or wait in a ring.

    What touches an element type that kernels do not have is in no group.
    """
    ops = enumerate(region.graph.ops)
    anchors = [i for i, op in ops if op.name in ANCHORS and region.has_kernels(op)]
    anchors.sort(key=region.order.__getitem__)
    owned: set[int] = set(anchors)
    found: dict[int, Group] = {}
    for anchor in sorted(anchors, key=lambda a: -region.depths[a]):
        found[anchor] = Group(anchor, after=_grow_down(region, anchor, owned))
        owned |= found[anchor].after
    for anchor in anchors:
        before = _grow_up(region, found[anchor], owned)
        found[anchor] = Group(anchor, before, found[anchor].after)
        owned |= before
    kept = _without_rings(region, [found[a] for a in anchors])
    return sorted(kept, key=lambda group: group.anchor)


def _grow_down(region: Region, anchor: int, owned: set[int]) -> frozenset[int]:
    graph, members = region.graph, 1 << anchor
    shape = region.type(graph.ops[anchor].results[0]).shape
    after: set[int] = set()
    waiting = set(region.users[graph.ops[anchor].results[0]])
    while waiting:
        index = min(waiting)
        waiting.remove(index)
        op = graph.ops[index]
        if index in owned or not _is_elementwise(region, op, shape):
            continue
        if any(_breaks(region, value, members) for value in op.operands):
            continue
        after.add(index)
        members |= 1 << index
        waiting |= region.users[op.results[0]]
    return frozenset(after)


def _is_elementwise(region: Region, op: Op, shape: tuple[int, ...]) -> bool:
    """Whether an operation computes each element of `shape` from elements at the same place."""
    fits = op.name in KERNELS_ELEMENTWISE and region.type(op.results[0]).shape == shape
    return fits and region.has_kernels(op)


def _breaks(region: Region, value: int, members: int) -> bool:
    """Whether a member that reads this value would wait for the group from outside of it."""
    producer = region.producers.get(value)
    if producer is not None and members >> producer & 1:
        return False
    return region.waits_for(value, members)


def _grow_up(region: Region, group: Group, owned: set[int]) -> frozenset[int]:
    graph = region.graph
    before: set[int] = set()
    waiting = list(graph.ops[group.anchor].operands)
    while waiting:
        value = waiting.pop()
        index = region.producers.get(value)
        if index is None or index in owned or index in before or value in graph.results:
            continue
        op = graph.ops[index]
        used_here_only = region.users[value] <= group.members | before
        if used_here_only and _may_stand_before(region, op, region.type(value).shape):
            before.add(index)
            waiting.extend(op.operands)
    return frozenset(before)


def _may_stand_before(region: Region, op: Op, shape: tuple[int, ...]) -> bool:
    """Whether a kernel may read what an operation reads in place of its result of `shape`.

    Of what turns an input every kernel has its own.
    """
    turns = op.name in TURNS and not _turns_input(region, op)
    return turns or _is_elementwise(region, op, shape)


def _turns_input(region: Region, op: Op) -> bool:
    """Whether an operation turns an argument or a constant, perhaps one that was turned before."""
    if op.name not in TURNS:
        return False
    producer = region.producer(op.operands[0])
    return (
        producer is None or producer.name == "stablehlo.constant" or _turns_input(region, producer)
    )


def is_cloned_constant(op: Op) -> bool:
    """Splats, and constants of few elements, are written into the kernel itself."""
    if op.name != "stablehlo.constant":
        return op.name == "stablehlo.iota"
    literal = op["value"]
    if not isinstance(literal, Literal):
        return False
    return literal.splat or literal.type.elements <= INLINE_ELEMENTS


def clones(region: Region, group: Group, taken: frozenset[int]) -> frozenset[int]:
    """What a kernel computes for itself: constants, broadcasts, small vectors below broadcasts.

    Not what is `taken` by any group: where that group is replaced, what its members read is gone.
    """
    graph = region.graph
    members = group.members
    bits = sum(1 << m for m in members)
    limit = max(region.type(graph.ops[group.anchor].results[0]).elements // 8, SMALL_ELEMENTS)
    found: set[int] = set()
    waiting = [(v, False) for m in sorted(members - {group.anchor}) for v in graph.ops[m].operands]
    while waiting:
        value, below = waiting.pop()
        index = region.producers.get(value)
        if index is None or index in taken or index in found or region.waits_for(value, bits):
            continue
        op = graph.ops[index]
        if _is_cloned(region, op, below, limit):
            found.add(index)
            below = below or op.name == "stablehlo.broadcast_in_dim"
            waiting.extend((v, below) for v in op.operands)
    return frozenset(found) | _constant_operands(region, group.anchor)


def _constant_operands(region: Region, anchor: int) -> frozenset[int]:
    """Of what computes the tensors of an anchor small constants and turned inputs are cloned."""
    found: set[int] = set()
    waiting = list(region.graph.ops[anchor].operands)
    while waiting:
        index = region.producers.get(waiting.pop())
        op = None if index is None else region.graph.ops[index]
        if index is None or op is None:
            continue
        if is_cloned_constant(op):
            found.add(index)
        elif _turns_input(region, op):
            found.add(index)
            waiting.extend(op.operands)
    return frozenset(found)


def _is_cloned(region: Region, op: Op, below: bool, limit: int) -> bool:
    """Whether an operation beside the members is copied; `below` a broadcast it is a vector."""
    if not region.has_kernels(op):
        return False
    if is_cloned_constant(op) or op.name == "stablehlo.broadcast_in_dim":
        return True
    if _turns_input(region, op):
        return True
    if not op.results:
        return False
    result = region.type(op.results[0])
    if op.name == "stablehlo.reshape":
        return _adds_ones(region.type(op.operands[0]), result)
    if op.name not in KERNELS_ELEMENTWISE:
        return False
    return (below and result.elements <= limit) or region.is_narrow(op.results[0])


def _adds_ones(before: TensorType, after: TensorType) -> bool:
    """Whether two shapes differ in extents of 1 only."""
    return [d for d in before.shape if d > 1] == [d for d in after.shape if d > 1]


def _without_rings(region: Region, found: list[Group]) -> list[Group]:
    """Groups shrunk to their anchors where they would wait for each other."""
    if not _has_ring(region, found):
        return found
    kept: list[Group] = []
    for group in found:
        ring = _has_ring(region, [*kept, group])
        kept.append(Group(group.anchor) if ring else group)
    return kept


def _has_ring(region: Region, found: list[Group]) -> bool:
    """Whether operations cannot be ordered once each group is one."""
    owner = {m: g.anchor for g in found for m in g.members}
    needs: dict[int, set[int]] = defaultdict(set)
    for i, op in enumerate(region.graph.ops):
        node = owner.get(i, i)
        producers = (region.producers[v] for v in reads(op) if v in region.producers)
        needs[node] |= {owner.get(p, p) for p in producers} - {node}
    users: dict[int, list[int]] = defaultdict(list)
    for node, sources in needs.items():
        for source in sources:
            users[source].append(node)
    waiting = {node: len(sources) for node, sources in needs.items()}
    ready = [node for node, n in waiting.items() if n == 0]
    ordered = 0
    while ready:
        ordered += 1
        for user in users[ready.pop()]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    return ordered < len(waiting)

"""Which operations go with an anchor (a dot or a convolution) into one kernel.

An anchor's group grows downwards first: elementwise operations of the anchor's own shape, as long
as everything else they read can be computed without waiting for the group.  An operation between
two anchors belongs to the producer; where two anchors meet, to the deeper one.  What turns the
result of a dot of few terms is a member where vectors of the kernel then go along a batch.  Then it
grows upwards, over elementwise operations that nothing else uses, and beside: over those of one
tensor that only its members below the anchor use, as a momentum that is scaled. Scalars, broadcasts
and small vectors are not members: they are cloned into every kernel that reads them.
"""

from hlotune.hlo.graph import Op, TensorType
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.region import Group, Region, is_cloned_constant
from hlotune.hlo.sites.rings import has_ring
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.few_terms import ends_in_batch, has_few_terms

ANCHORS = ("stablehlo.dot_general", "stablehlo.convolution")
TURNS = frozenset({"stablehlo.reverse", "stablehlo.transpose"})
"""Another order of what an operand holds: to a kernel no work, but other strides."""
SMALL_ELEMENTS = 4096
"""Vectors up to this size, or an eighth of the anchor's result, are computed in every kernel."""


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
        after = _grow_down(region, anchor, owned)
        found[anchor] = _around(anchor, after)
        owned |= after
    for anchor in anchors:
        before = _grow_up(region, found[anchor], owned)
        owned |= before
        beside = _grow_beside(region, found[anchor], owned)
        found[anchor] = _around(anchor, found[anchor].members | before | beside)
        owned |= beside
    kept = _without_rings(region, [found[a] for a in anchors])
    return sorted(kept, key=lambda group: group.root)


def _around(anchor: int, others: frozenset[int]) -> Group:
    return Group(anchor, others | {anchor}, "contraction")


def bare(group: Group) -> Group:
    """The anchor alone."""
    return _around(group.root, frozenset())


def with_epilogue(region: Region, group: Group) -> Group:
    """The anchor with what stands after it."""
    return _around(group.root, after(region, group))


def after(region: Region, group: Group) -> frozenset[int]:
    """The members that wait for the anchor, and those that stand beside these."""
    return group.members - before(region, group) - {group.root}


def before(region: Region, group: Group) -> frozenset[int]:
    """The members that the anchor waits for."""
    return frozenset(m for m in group.members if region.ancestors[group.root] >> m & 1)


def _grow_down(region: Region, anchor: int, owned: set[int]) -> frozenset[int]:
    graph, members = region.graph, 1 << anchor
    shapes = {region.type(graph.ops[anchor].results[0]).shape}
    after: set[int] = set()
    waiting = set(region.users[graph.ops[anchor].results[0]])
    while waiting:
        index = min(waiting)
        waiting.remove(index)
        op = graph.ops[index]
        turned = _is_turned(region, graph.ops[anchor], op)
        if index in owned or not (turned or any(_is_elementwise(region, op, s) for s in shapes)):
            continue
        if any(_breaks(region, value, members) for value in op.operands):
            continue
        after.add(index)
        members |= 1 << index
        shapes.add(region.type(op.results[0]).shape)
        waiting |= region.users[op.results[0]]
    return frozenset(after)


def _is_elementwise(region: Region, op: Op, shape: tuple[int, ...]) -> bool:
    """Whether an operation computes each element of `shape` from elements at the same place."""
    fits = op.name in KERNELS_ELEMENTWISE and region.type(op.results[0]).shape == shape
    return fits and region.has_kernels(op)


def _is_turned(region: Region, anchor: Op, op: Op) -> bool:
    """Whether an operation turns what is computed of an anchor with few terms, which is stored so
    that a batch comes last."""
    if op.name != "stablehlo.transpose" or not region.has_kernels(op):
        return False
    operands = [region.type(v) for v in anchor.operands]
    few = has_few_terms(anchor, operands, region.type(anchor.results[0]))
    return few and ends_in_batch(anchor, numbers(op, "permutation"))


def _breaks(region: Region, value: int, members: int) -> bool:
    """Whether a member that reads this value would wait for the group from outside of it."""
    producer = region.producers.get(value)
    if producer is not None and members >> producer & 1:
        return False
    return region.waits_for(value, members)


def _grow_up(region: Region, group: Group, owned: set[int]) -> frozenset[int]:
    graph = region.graph
    before: set[int] = set()
    waiting = list(graph.ops[group.root].operands)
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


def _grow_beside(region: Region, group: Group, owned: set[int]) -> frozenset[int]:
    """Operations of one tensor that nothing but the members below the anchor reads: the kernel
    reads that tensor in the place of their result.
    """
    graph, below = region.graph, after(region, group)
    shape = region.type(graph.ops[group.root].results[0]).shape
    beside: set[int] = set()
    waiting = [v for m in sorted(below) for v in graph.ops[m].operands]
    while waiting:
        value = waiting.pop()
        index = region.producers.get(value)
        if index is None or index in owned or index in beside or value in graph.results:
            continue
        op = graph.ops[index]
        used_here_only = region.users[value] <= below | beside
        if used_here_only and _is_elementwise(region, op, shape) and _reads_one(region, op):
            beside.add(index)
            waiting.extend(op.operands)
    return frozenset(beside)


def _reads_one(region: Region, op: Op) -> bool:
    """Whether one operand of an operation at most is more than broadcasts of smaller tensors."""
    wide = {v for v in op.operands if not region.is_narrow(v)}
    return len(wide) == 1


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


def clones(region: Region, group: Group, taken: frozenset[int]) -> frozenset[int]:
    """What a kernel computes for itself: constants, broadcasts, small vectors below broadcasts.

    Not what is `taken` by any group: where that group is replaced, what its members read is gone.
    """
    graph = region.graph
    members = group.members
    bits = sum(1 << m for m in members)
    limit = max(region.type(graph.ops[group.root].results[0]).elements // 8, SMALL_ELEMENTS)
    found: set[int] = set()
    waiting = [(v, False) for m in sorted(members - {group.root}) for v in graph.ops[m].operands]
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
    return frozenset(found) | _constant_operands(region, group.root)


def _constant_operands(region: Region, anchor: int) -> frozenset[int]:
    """The small constants and the turned inputs among the operations that compute the operands of
    an anchor: these are cloned.
    """
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
    if not has_ring(region, found):
        return found
    kept: list[Group] = []
    for group in found:
        ring = has_ring(region, [*kept, group])
        kept.append(bare(group) if ring else group)
    return kept

"""Groups that are attention: two products, and between them what waits for the first one.

Of the operations between the products one is an exponential and one a reduction.  All that waits
for the first product and that the second one waits for belongs to the group, as long as nothing
else reads it; so do the operations that stand before both in their own groups, and those behind the
second that only move its elements.
"""

from collections.abc import Mapping, Sequence

from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.contractions import before
from hlotune.hlo.sites.fusible import INDEX_MAPS, REDUCE, Fusible
from hlotune.hlo.sites.region import Group, Region

DOT = "stablehlo.dot_general"
MOVED = frozenset({"stablehlo.transpose", "stablehlo.reshape", "stablehlo.convert"})
"""Operations behind the second product that its kernel takes over."""
BETWEEN = INDEX_MAPS | {"stablehlo.transpose", REDUCE} | frozenset(KERNELS_ELEMENTWISE)


def attentions(region: Region, fusible: Fusible, contractions: Sequence[Group]) -> list[Group]:
    """The attentions of a region, in order; none share operations."""
    largest = {g.root: g for g in contractions}
    found, owned = list[Group](), set[int]()
    for second in sorted(largest, key=region.order.__getitem__):
        for first in _products_above(region, second, largest):
            group = _group(region, fusible, largest, first, second)
            if group is not None and owned.isdisjoint(group.members):
                owned |= group.members
                found.append(group)
                break
    return found


def _products_above(region: Region, second: int, largest: Mapping[int, Group]) -> list[int]:
    """Products that one waits for, with no product in between; the nearest first."""
    if region.graph.ops[second].name != DOT:
        return []
    above = [f for f in largest if region.ancestors[second] >> f & 1]
    nearest = [f for f in above if not any(region.ancestors[o] >> f & 1 for o in above)]
    dots = [f for f in nearest if region.graph.ops[f].name == DOT]
    return sorted(dots, key=region.order.__getitem__, reverse=True)


def _group(
    region: Region, fusible: Fusible, largest: Mapping[int, Group], first: int, second: int
) -> Group | None:
    """The attention of two products; None where they are none."""
    between = _between(region, first, second)
    if not _is_softmax_like(region, between) or not all(_fits(fusible, m) for m in between):
        return None
    inside = {first, second, *between}
    inside |= before(region, largest[first]) | before(region, largest[second])
    if any(region.graph.ops[m].name == DOT for m in inside - {first, second}):
        return None
    inside |= _moves_behind(region, second)
    results = [
        r for m in inside for r in region.graph.ops[m].results
        if r in region.graph.results or region.users[r] - inside
    ]  # fmt: skip
    if len(results) != 1:
        return None
    return Group(second, frozenset(inside), "attention")


def _between(region: Region, first: int, second: int) -> frozenset[int]:
    ends = region.ancestors[second]
    return frozenset(
        i for i in range(first + 1, second)
        if ends >> i & 1 and region.ancestors[i] >> first & 1
    )  # fmt: skip


def _is_softmax_like(region: Region, between: frozenset[int]) -> bool:
    names = {region.graph.ops[m].name for m in between}
    return {REDUCE, "stablehlo.exponential"} <= names <= BETWEEN


def _fits(fusible: Fusible, member: int) -> bool:
    return fusible.facts[0][member]


def _moves_behind(region: Region, second: int) -> set[int]:
    """The operations that take a product's result one after the other, and only move it."""
    graph, found = region.graph, set[int]()
    value = graph.ops[second].results[0]
    while value not in graph.results and len(region.users[value]) == 1:
        (user,) = region.users[value]
        op = graph.ops[user]
        if op.name not in MOVED or not region.has_kernels(op):
            break
        found.add(user)
        value = op.results[0]
    return found

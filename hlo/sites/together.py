"""Groups that do the same to many arrays: one kernel, where none of them waits for another.

An update of all parameters of a network is hundreds of small kernels, each of which costs a call.
"""

from collections import defaultdict
from collections.abc import Sequence

from hlotune.hlo.sites.region import Group, Region

FEWEST = 4
"""Groups that are worth being one kernel."""


def together(region: Region, groups: Sequence[Group]) -> list[Group]:
    """Groups of elementwise groups with the same operations, each as large as it can be.

    Nothing but results of the region comes of these: a kernel of many arrays ends when all of them
    are done, and what waited for one of them would wait for all.
    """
    alike = defaultdict[tuple[str, ...], list[Group]](list)
    for group in groups:
        if group.pattern == "elementwise" and _ends(region, group):
            names = sorted(region.graph.ops[m].name for m in group.members)
            alike[tuple(names)].append(group)
    found = [_apart(region, several) for several in alike.values() if len(several) >= FEWEST]
    return [_joined(region, several) for several in found if len(several) >= FEWEST]


def _ends(region: Region, group: Group) -> bool:
    """Whether no operation outside of a group reads what its members give."""
    values = (v for m in group.members for v in region.graph.ops[m].results)
    return all(region.users[v] <= group.members for v in values)


def _apart(region: Region, groups: Sequence[Group]) -> list[Group]:
    """The groups in order, without any that waits for an earlier one, directly or not."""
    kept, members, before = list[Group](), 0, 0
    for group in groups:
        own = sum(1 << m for m in group.members)
        ahead = 0
        for m in group.members:
            ahead |= region.ancestors[m]
        if not ahead & members and not before & own:
            kept.append(group)
            members, before = members | own, before | ahead
    return kept


def _joined(region: Region, groups: Sequence[Group]) -> Group:
    members = frozenset[int]().union(*(g.members for g in groups))
    root = max(members, key=region.order.__getitem__)
    return Group(root, members, "elementwise", tuple(g.members for g in groups))

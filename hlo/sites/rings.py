"""Groups that would wait for each other."""

from collections import defaultdict
from collections.abc import Sequence

from hlotune.hlo.sites.region import Group, Region, reads


def has_ring(region: Region, found: Sequence[Group]) -> bool:
    """Whether operations cannot be ordered once each group is one."""
    owner = {m: g.root for g in found for m in g.members}
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

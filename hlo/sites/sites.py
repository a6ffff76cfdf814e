"""Places in a program where kernels can stand.

Every dot and convolution, also inside loops and branches, is the anchor of up to three sites that
are alternatives: with the operations before and after it, with those after it, and alone.  The
first alternatives of all anchors share no operation.

Elementwise operations and reductions that are left are sites too, as large as they can be; so are
those that are left where contractions stand alone, and their parts between reductions.  Of all that
share operations `choose` takes what saves the most.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

from hlotune.hlo.canonical import INLINE_ELEMENTS, argument_order, canonical
from hlotune.hlo.constants import splat_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph, Literal, Op
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.attention import attentions
from hlotune.hlo.sites.contractions import ANCHORS, bare, clones, groups, with_epilogue
from hlotune.hlo.sites.fusible import Fusible
from hlotune.hlo.sites.fusion import fused, is_worth_a_kernel, parts
from hlotune.hlo.sites.labels import label
from hlotune.hlo.sites.region import Group, Pattern, Region
from hlotune.hlo.sites.scopes import Scope, scopes
from hlotune.hlo.sites.stacks import Stack, stack_of
from hlotune.hlo.sites.together import together
from hlotune.hlo.sites.trip_counts import flows


@dataclass(frozen=True, slots=True)
class Site:
    """A group of operations of one region that a kernel can replace."""

    name: str
    """Unique in the program: `conv3`, `conv3.epilogue`, `conv3.bare`."""
    kernel: Kernel
    label: str
    weight: float
    """Runs of the site in one run of the program."""
    root: int
    """Index among the operations of the region of the one that the group was grown from."""
    pattern: Pattern
    ops: frozenset[int]
    """Indices of the operations that the kernel replaces."""
    path: tuple[int, ...]
    """The region: (operation, region, ...) from the function inwards; () is the function."""
    arguments: tuple[int, ...]
    """Values of the region, in the order of the kernel's arguments."""
    results: tuple[int, ...]
    """Values of the region, in the order of the kernel's results."""
    constants: tuple[tuple[int, Literal | int | Stack], ...] = ()
    """(argument position, its value or the program's argument) where a constant is marked; a stack
    where each run of a loop reads another part of one."""
    above: int = 0
    """The operations that its arguments wait for, as bits."""


_known: WeakKeyDictionary[Program, tuple[Site, ...]] = WeakKeyDictionary()
"""What a run has found is what it puts kernels into at its end; large programs take seconds."""


def sites(program: Program) -> tuple[Site, ...]:
    """All candidate sites, what is best chosen first where they share operations.

    First those of attention, then those of contractions; those of one anchor follow each other, the
    largest first.  Then
    groups of what stands outside of these, then those that stand outside of bare contractions, and
    parts of both.
    """
    if program not in _known:
        _known[program] = _found(program)
    return _known[program]


def _found(program: Program) -> tuple[Site, ...]:
    found: list[Site] = []
    counts = Counter[str]()
    runs = {place: flow.runs for place, flow in flows(program.graph, program.trips).items()}
    places = [_place(scope) for scope in scopes(program.graph, runs)]
    for place in places:
        found.extend(_attentions(place, counts))
    for place in places:
        for group in place.contractions:
            kind = "dot" if place.scope.graph.ops[group.root].name == ANCHORS[0] else "conv"
            found.extend(_around_contraction(place, group, f"{kind}{counts[kind]}"))
            counts[kind] += 1
    for place in places:
        found.extend(_without_contraction(place, counts))
    return tuple(found)


@dataclass(frozen=True)
class _Place:
    """A region in which groups stand, and the largest groups of its contractions."""

    scope: Scope
    region: Region
    contractions: tuple[Group, ...]
    taken: frozenset[int]
    """Members of these."""

    @cached_property
    def cloned(self) -> frozenset[int]:
        """Operations that some kernel around a contraction computes for itself."""
        largest, region = self.contractions, self.region
        forms = (*largest, *(with_epilogue(region, g) for g in largest), *map(bare, largest))
        return frozenset[int]().union(*(clones(region, g, self.taken) for g in forms))


def _place(scope: Scope) -> _Place:
    region = Region(scope.graph)
    largest = tuple(groups(region))
    return _Place(scope, region, largest, frozenset().union(*(g.members for g in largest)))


def _attentions(place: _Place, counts: Counter[str]) -> Iterator[Site]:
    """Two products with a softmax between, each as one kernel."""
    fusible = Fusible(place.region, frozenset(), place.taken, place.cloned)
    for group in attentions(place.region, fusible, place.contractions):
        name, copied = f"attention{counts[group.pattern]}", fusible.copies(group.members)
        yield _site(place, group, name, copied - group.members, _used_outside(place.region, group))
        counts[group.pattern] += 1


def _around_contraction(place: _Place, largest: Group, name: str) -> Iterator[Site]:
    """The largest group, the one without what stands before, the anchor alone; each once."""
    named = {
        "": largest,
        ".epilogue": with_epilogue(place.region, largest),
        ".bare": bare(largest),
    }
    seen: set[frozenset[int]] = set()
    for suffix, group in named.items():
        if group.members not in seen:
            seen.add(group.members)
            copied = clones(place.region, group, place.taken)
            results = _used_outside(place.region, group)
            yield _site(place, group, name + suffix, copied, results)


def _without_contraction(place: _Place, counts: Counter[str]) -> Iterator[Site]:
    """Groups of elementwise operations and reductions; each once."""
    region, alone, cloned = place.region, tuple(map(bare, place.contractions)), place.cloned
    wholes: list[tuple[Fusible, Group, str]] = []
    seen: set[frozenset[int]] = set()
    for kernels in (place.contractions, alone):
        owned = frozenset[int]().union(*(g.members for g in kernels))
        fusible = Fusible(region, owned, place.taken, cloned)
        for group in fused(fusible, kernels):
            if group.members not in seen:
                seen.add(group.members)
                wholes.append((fusible, group, f"{group.pattern}{counts[group.pattern]}"))
                counts[group.pattern] += 1
    for several in together(region, [group for _, group, _ in wholes]):
        if several.members not in seen:
            seen.add(several.members)
            yield _fused_site(place, wholes[0][0], several, f"arrays{counts['arrays']}")
            counts["arrays"] += 1
    for fusible, group, name in wholes:
        yield _fused_site(place, fusible, group, name)
    for fusible, group, name in wholes:
        for k, part in enumerate(parts(region, group)):
            if part.members not in seen and is_worth_a_kernel(place.scope.graph, part.members):
                seen.add(part.members)
                yield _fused_site(place, fusible, part, f"{name}.part{k}")


def _fused_site(place: _Place, fusible: Fusible, group: Group, name: str) -> Site:
    members = sorted(group.members, key=place.region.order.__getitem__)
    values = [r for m in members for r in place.scope.graph.ops[m].results]
    results = [r for r in values if fusible.leaves(r, group.members)]
    return _site(place, group, name, fusible.copies(group.members), results)


def _site(
    place: _Place, group: Group, name: str, copied: frozenset[int], results: Sequence[int]
) -> Site:
    known: dict[int, Literal | int | Stack] = {}
    graph, values = _cut(place, group, copied, results, known)
    arguments = tuple(values[a] for a in argument_order(graph))
    return Site(
        name=name,
        kernel=Kernel(canonical(graph)),
        label=label(place.region, group),
        weight=place.scope.weight,
        root=group.root,
        pattern=group.pattern,
        ops=group.members,
        path=place.scope.path,
        arguments=arguments,
        results=tuple(values[r] for r in graph.results),
        constants=tuple((i, known[a]) for i, a in enumerate(arguments) if a in known),
        above=_above(place.region, arguments),
    )


def _above(region: Region, values: Sequence[int]) -> int:
    """The operations that some values wait for, as bits."""
    found = 0
    for value in values:
        producer = region.producers.get(value)
        if producer is not None:
            found |= region.ancestors[producer] | 1 << producer
    return found


def _cut(
    place: _Place,
    group: Group,
    copied: frozenset[int],
    used: Sequence[int],
    known: dict[int, Literal | int | Stack],
) -> tuple[Graph, dict[int, int]]:
    """The kernel's graph and the region's value of each of its own; fills in what is `known`.

    Its results are the values that are `used`, the deepest first.
    """
    scope, graph = place.scope, place.scope.graph
    indices = sorted(group.members | copied)
    ops = [graph.ops[i] for i in indices]
    defined = {r for op in ops for r in op.results}
    leaves = list(dict.fromkeys(v for op in ops for v in op.operands if v not in defined))
    small = {v: c for v in leaves if (c := _small_constant(scope, v)) is not None}
    arguments = [v for v in leaves if v not in small]
    known.update((v, k) for v in arguments if (k := _constant(scope, v)) is not None)
    order = [*leaves, *(r for op in ops for r in op.results)]
    number = {value: i for i, value in enumerate(order)}
    renumbered = [_constant_op(number[v], c) for v, c in small.items()]
    renumbered += [_renumber(op, number) for op in ops]
    depths, digests = _depths_and_digests(renumbered)
    results = sorted(used, key=lambda v: (-depths[number[v]], digests[number[v]]))
    kernel = Graph(
        types=tuple(graph.types[v] for v in order),
        arguments=tuple(number[v] for v in arguments),
        ops=tuple(renumbered),
        results=tuple(number[v] for v in results),
        constants=frozenset(number[v] for v in known),
    )
    return kernel, dict(enumerate(order))


def _renumber(op: Op, number: Mapping[int, int]) -> Op:
    operands, results = (tuple(number[v] for v in vs) for vs in (op.operands, op.results))
    return replace(op, operands=operands, results=results)


def _constant_op(value: int, literal: Literal) -> Op:
    return Op("stablehlo.constant", (), (value,), (("value", literal),))


def _small_constant(scope: Scope, value: int) -> Literal | None:
    """A constant of an outer region, or a broadcast of a number, that is cloned into the kernel."""
    literal = scope.literal(value)
    is_small = literal is not None and (literal.splat or literal.type.elements <= INLINE_ELEMENTS)
    return literal if is_small else splat_of(scope, value)


def _constant(scope: Scope, value: int) -> Literal | int | Stack | None:
    """The value of a constant, the program's argument that is marked as one, or a part of these."""
    whole = scope.constant(value)
    return stack_of(scope, value) if whole is None else whole


def _used_outside(region: Region, group: Group) -> list[int]:
    """Values of members that are results or that others read."""
    return [
        r
        for m in sorted(group.members, key=region.order.__getitem__)
        for r in region.graph.ops[m].results
        if r in region.graph.results or region.users[r] - group.members
    ]


def _depths_and_digests(ops: Sequence[Op]) -> tuple[dict[int, int], dict[int, str]]:
    """For each value how many operations stand above it, and a hash of what computes it."""
    depths: dict[int, int] = {}
    digests: dict[int, str] = {}
    for op in ops:
        depth = 1 + max((depths.get(v, 0) for v in op.operands), default=0)
        text = repr((op.name, op.attributes, [digests.get(v, "") for v in op.operands]))
        digest = hashlib.sha256(text.encode()).hexdigest()
        for i, result in enumerate(op.results):
            depths[result], digests[result] = depth, f"{digest}{i}"
    return depths, digests


def choose(sites: Sequence[Site], times: Mapping[str, tuple[float, float]]) -> tuple[Site, ...]:
    """Disjoint sites that save the most time, greedily; in the order of the program.

    Sites that would wait for one another in a ring are not chosen together.

    `times` maps keys of kernels to (default, tuned) seconds; a site whose kernel is not in it, or
    not faster, stays with the default compiler.
    """

    def gain_s(site: Site) -> float:
        default_s, tuned_s = times.get(site.kernel.key, (0.0, 0.0))
        return site.weight * (default_s - tuned_s)

    chosen, paths = set[str](), defaultdict[tuple[int, ...], list[tuple[int, int]]](list)
    for site in sorted(sites, key=gain_s, reverse=True):
        rivals, own = paths[site.path], sum(1 << m for m in site.ops)
        fits = gain_s(site) > 0 and not any(own & bits for bits, _ in rivals)
        if fits and not _waits_for_itself(own, site.above, rivals):
            rivals.append((own, site.above))
            chosen.add(site.name)
    return tuple(site for site in sites if site.name in chosen)


def overlap(a: Site, b: Site) -> bool:
    """Whether two sites have operations in common, so that one of them at most can be replaced."""
    return a.path == b.path and not a.ops.isdisjoint(b.ops)


def _waits_for_itself(own: int, above: int, others: Sequence[tuple[int, int]]) -> bool:
    """Whether a kernel in the place of some operations, which wait for those `above`, would wait
    for its own result by way of others: (operations, those above) of each, with no ring so far."""
    waiting = list(others)
    while not above & own:
        reached = [x for x in waiting if x[0] & above]
        if not reached:
            return False
        waiting = [x for x in waiting if not x[0] & above]
        for _, more in reached:
            above |= more
    return True

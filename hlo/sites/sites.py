"""Places in a program where kernels can stand.

Every dot and convolution, also inside loops and branches, is the anchor of up to three sites that
are alternatives: with the operations before and after it, with those after it, and alone.  The
first alternatives of all anchors share no operation.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hlotune.hlo.canonical import INLINE_ELEMENTS, argument_order, canonical
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph, Literal, Op
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.contractions import ANCHORS, bare, clones, groups, with_epilogue
from hlotune.hlo.sites.labels import label
from hlotune.hlo.sites.region import Group, Pattern, Region
from hlotune.hlo.sites.scopes import Scope, scopes


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
    constants: tuple[tuple[int, Literal | int], ...] = ()
    """(argument position, its value or the program's argument) where a constant is marked."""


def sites(program: Program) -> tuple[Site, ...]:
    """All candidate sites.  Those of one anchor follow each other, the largest first."""
    found: list[Site] = []
    counts = {"dot": 0, "conv": 0}
    for scope in scopes(program.graph):
        region = Region(scope.graph)
        largest = groups(region)
        place = _Place(scope, region, frozenset().union(*(g.members for g in largest)))
        for group in largest:
            kind = "dot" if scope.graph.ops[group.root].name == ANCHORS[0] else "conv"
            found.extend(_alternatives(place, group, f"{kind}{counts[kind]}"))
            counts[kind] += 1
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """A region in which groups stand, and all their members."""

    scope: Scope
    region: Region
    taken: frozenset[int]


def _alternatives(place: _Place, largest: Group, name: str) -> Iterator[Site]:
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
            yield _site(place, group, name + suffix)


def _site(place: _Place, group: Group, name: str) -> Site:
    known: dict[int, Literal | int] = {}
    graph, values = _cut(place, group, known)
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
    )


def _cut(
    place: _Place, group: Group, known: dict[int, Literal | int]
) -> tuple[Graph, dict[int, int]]:
    """The kernel's graph and the region's value of each of its own; fills in what is `known`."""
    scope, graph = place.scope, place.scope.graph
    indices = sorted(group.members | clones(place.region, group, place.taken))
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
    results = _results(place.region, group, renumbered, number)
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
    """A constant of an outer region that is cloned into the kernel."""
    literal = scope.literal(value)
    is_small = literal is not None and (literal.splat or literal.type.elements <= INLINE_ELEMENTS)
    return literal if is_small else None


def _constant(scope: Scope, value: int) -> Literal | int | None:
    """The value of a constant, or the program's argument that is marked as one."""
    literal = scope.literal(value)
    if literal is not None:
        return literal
    origin, there = scope.origin(value)
    marked = origin.outer is None and there in origin.graph.constants
    return there if marked else None


def _results(
    region: Region, group: Group, ops: Sequence[Op], number: Mapping[int, int]
) -> list[int]:
    """Values of members that are used outside, the deepest first."""
    used = [
        r
        for m in sorted(group.members, key=region.order.__getitem__)
        for r in region.graph.ops[m].results
        if r in region.graph.results or region.users[r] - group.members
    ]
    depths, digests = _depths_and_digests(ops)
    return sorted(used, key=lambda v: (-depths[number[v]], digests[number[v]]))


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

    `times` maps keys of kernels to (default, tuned) seconds; a site whose kernel is not in it, or
    not faster, stays with the default compiler.
    """

    def gain_s(site: Site) -> float:
        default_s, tuned_s = times.get(site.kernel.key, (0.0, 0.0))
        return site.weight * (default_s - tuned_s)

    taken: set[tuple[tuple[int, ...], int]] = set()
    chosen: list[Site] = []
    for site in sorted(sites, key=gain_s, reverse=True):
        places = {(site.path, op) for op in site.ops}
        if gain_s(site) > 0 and not places & taken:
            taken |= places
            chosen.append(site)
    return tuple(site for site in sites if site in chosen)

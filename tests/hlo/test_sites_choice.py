"""Sites are chosen so that nothing is replaced twice, and groups of any graph are convex."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.hlo.canonical import canonical, graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site, choose, overlap, sites
from tests.hlo.test_sites import f32, layer, sites_of


def disjoint(found: Iterable[Site]) -> bool:
    places = [(s.path, op) for s in found for op in s.ops]
    return len(places) == len(set(places))


def test_choose_takes_what_saves_most_and_nothing_twice() -> None:
    found = sites_of(layer, f32(64, 784), f32(784, 512), f32(512))
    whole, bare = found
    times = {whole.kernel.key: (2.0, 1.0), bare.kernel.key: (1.5, 1.0)}
    assert choose(found, times) == (whole,)
    assert choose(found, {bare.kernel.key: (1.5, 1.0)}) == (bare,)


def test_choose_leaves_what_is_not_faster() -> None:
    found = sites_of(layer, f32(64, 784), f32(784, 512), f32(512))
    assert choose(found, {s.kernel.key: (1.0, 1.0) for s in found}) == ()
    assert choose(found, {}) == ()


MATRIX = TensorType((4, 4), "f32")


DOT = (
    ("lhs_batching_dimensions", ()),
    ("lhs_contracting_dimensions", (1,)),
    ("rhs_batching_dimensions", ()),
    ("rhs_contracting_dimensions", (0,)),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of dots, elementwise operations and transposes on 4 x 4 matrices."""
    ops: list[Op] = []
    for i in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(("dot_general", "add", "tanh", "transpose")))
        count = 1 if name in ("tanh", "transpose") else 2
        operands = tuple(draw(st.integers(0, i + 1)) for _ in range(count))
        attributes = {"dot_general": DOT, "transpose": (("permutation", (1, 0)),)}.get(name, ())
        ops.append(Op(f"stablehlo.{name}", operands, (i + 2,), attributes))
    used = {v for op in ops for v in op.operands}
    results = draw(st.sets(st.integers(2, len(ops) + 1), max_size=3))
    results |= {
        op.results[0] for op in ops
    } - used  # as in normal form, nothing is computed in vain
    return Graph((MATRIX,) * (len(ops) + 2), (0, 1), tuple(ops), tuple(sorted(results)))


def reaches(graph: Graph, start: frozenset[int], end: frozenset[int]) -> bool:
    """Whether a way leads out of `start` and into `end` through other operations."""
    tainted: set[int] = set()
    for i, op in enumerate(graph.ops):
        outside = any(v in tainted for v in op.operands)
        if i in end and outside:
            return True
        inside = any(v in graph.ops[m].results for m in start for v in op.operands)
        if i not in start and (outside or inside):
            tainted |= set(op.results)
    return False


def in_another_order(data: st.DataObject, graph: Graph) -> Graph:
    """The same statements in any order in which values are defined before they are used."""
    left, defined, ops = list(graph.ops), set(graph.arguments), list[Op]()
    while left:
        ops.append(data.draw(st.sampled_from([op for op in left if defined >= {*op.operands}])))
        left.remove(ops[-1])
        defined |= {*ops[-1].results}
    return replace(graph, ops=tuple(ops))


@given(graphs(), st.data())
def test_kernels_do_not_hang_on_the_order_of_the_statements(
    graph: Graph, data: st.DataObject
) -> None:
    """Else a program that is exported again would not find its records."""
    programs = (Program("g", "g", b"", g) for g in (graph, in_another_order(data, graph)))
    first, second = (Counter(s.kernel.key for s in sites(p)) for p in programs)
    assert first == second


def test_where_two_anchors_meet_the_order_of_the_statements_does_not_decide() -> None:
    """tanh(x @ w) + (w @ x + x): the last addition belongs to one of them."""
    left = Op("stablehlo.dot_general", (0, 1), (2,), DOT), Op("stablehlo.tanh", (2,), (3,))
    right = Op("stablehlo.dot_general", (1, 0), (4,), DOT), Op("stablehlo.add", (4, 0), (5,))
    last = Op("stablehlo.add", (3, 5), (6,))
    found = [
        Counter(s.kernel.key for s in sites(Program("g", "g", b"", graph)))
        for ops in ((*left, *right), (*right, *left))
        for graph in [Graph((MATRIX,) * 7, (0, 1), (*ops, last), (6,))]
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_results_that_are_computed_alike_stand_as_in_the_canonical_text(
    order: tuple[int, int],
) -> None:
    """x @ x + x and x @ x + y, whichever is computed first."""
    dot = Op("stablehlo.dot_general", (0, 0), (2,), DOT)
    sums = {2: Op("stablehlo.add", (2, 0), (3,)), 3: Op("stablehlo.add", (2, 1), (4,))}
    graph = Graph((MATRIX,) * 5, (0, 1), (dot, *(sums[k] for k in order)), (3, 4))
    (site, *_) = sites(Program("g", "g", b"", graph))
    assert site.results == (3, 4)


@given(graphs())
def test_groups_are_convex_disjoint_and_kernels_are_programs(graph: Graph) -> None:
    found = sites(Program("g", "g", b"", graph))
    contractions = [s for s in found if s.pattern == "contraction"]
    assert disjoint(s for s in contractions if "." not in s.name)
    anchors = {i for i, op in enumerate(graph.ops) if op.name == "stablehlo.dot_general"}
    assert {s.root for s in contractions} == anchors
    for site in found:
        assert not site.above & sum(1 << m for m in site.ops)
        if site in contractions:
            assert not reaches(graph, site.ops, site.ops)
        kernel = graph_of(site.kernel)
        assert canonical(kernel) == site.kernel.text
        assert tuple(graph.types[v] for v in site.arguments) == kernel.argument_types
        assert tuple(graph.types[v] for v in site.results) == kernel.result_types != ()


def random_sites(count: int, operations: int, size: int, seed: int) -> list[Site]:
    """Sites of some neighbouring operations each, which wait for a few of those before them."""
    rng, template = random.Random(seed), sites(load(lambda x: x @ x, f32(64, 64)))[0]
    reads = [rng.sample(range(max(0, i - 8), i), min(i, 2)) for i in range(operations)]
    above = [0] * operations
    for i, read in enumerate(reads):
        above[i] = reduce(or_, (above[r] | 1 << r for r in read), 0)
    found = []
    for k in range(count):
        first = rng.randrange(operations - 8)
        ops = frozenset(rng.sample(range(first, first + 8), size))
        arguments = {r for op in ops for r in reads[op]} - ops
        waits = reduce(or_, (above[r] | 1 << r for r in arguments), 0)
        kernel = Kernel(f"{template.kernel.text}// {k}")
        found.append(replace(template, name=f"s{k}", kernel=kernel, ops=ops, above=waits))
    return found


def in_order(chosen: Sequence[Site]) -> bool:
    """Whether kernels in the places of some sites can be put in order."""
    bits = {x.name: sum(1 << m for m in x.ops) for x in chosen}
    waits = {x.name: {name for name, own in bits.items() if x.above & own} for x in chosen}
    while free := {name for name, needs in waits.items() if not needs & waits.keys()}:
        waits = {name: needs for name, needs in waits.items() if name not in free}
    return not waits


@pytest.mark.parametrize("seed", range(16))
def test_as_many_sites_are_chosen_as_are_disjoint_and_wait_in_no_ring(seed: int) -> None:
    found = random_sites(40, 60, 3, seed)
    times = {s.kernel.key: (2.0 - k / 100, 1.0) for k, s in enumerate(found)}
    wanted: list[Site] = []
    for site in found:  # in the order of their gains
        if not any(overlap(site, x) for x in wanted) and in_order([*wanted, site]):
            wanted.append(site)
    disjoint = [s for k, s in enumerate(found) if not any(overlap(s, x) for x in found[:k])]
    assert len(wanted) > 1 and not in_order(disjoint), "some are left out for a ring"
    assert choose(found, times) == tuple(wanted)


def test_of_thousands_of_sites_those_to_take_are_chosen_in_seconds() -> None:
    found = random_sites(2000, 4000, 1, 0)
    began_s = time.perf_counter()
    chosen = choose(found, {s.kernel.key: (2.0, 1.0) for s in found})
    assert len(chosen) > 1000
    assert time.perf_counter() - began_s < 20

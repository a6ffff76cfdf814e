"""Kernels that read at places which data decides: gathers and dynamic slices, in any schedule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load, Lookup
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import initial
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Accumulate, Ahead, Pack, Stream
from hlotune.schedules.steps.validate import check_form
from tests.support.interpreter import interpret
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
TABLE = RNG.standard_normal((40, 21)).astype(np.float32)
ROWS = RNG.integers(-60, 60, (3, 7)).astype(np.int32)
"""Some beyond the table, on both sides."""
LOGITS = RNG.standard_normal((9, 21)).astype(np.float32)
LABELS = RNG.integers(0, 21, 9).astype(np.int32)
START = np.int32(5)


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=1).mean(1)


def exponentials_and_one(x: Any, labels: Any) -> Any:
    found = jnp.exp(x)
    return found.sum(1), jnp.take_along_axis(found, labels[:, None], axis=1)[:, 0]


def norm_of_rows(t: Any, rows: Any) -> Any:
    found = t[rows]
    centred = found - found.mean(-1, keepdims=True)
    return centred * lax.rsqrt(found.var(-1, keepdims=True) + 1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda t, i: t[i] + 1, (TABLE, ROWS)),
    "rows or NaN": (lambda t, i: jnp.take(t, i, axis=0) * 2, (TABLE, ROWS)),
    "clipped rows": (lambda t, i: jnp.take(t, i, axis=0, mode="clip"), (TABLE, ROWS)),
    "rows by bytes": (lambda t, i: t[i.astype(jnp.uint8)] + 1, (TABLE, ROWS)),
    "columns": (lambda t, i: jnp.take(t, i % 21, axis=1) * 2, (TABLE, ROWS[0])),
    "elements": (lambda t, i: t[i[0], i[1] % 21] * 2, (TABLE, ROWS)),
    "sums of rows": (lambda t, i: t[i].sum(1), (TABLE, ROWS)),
    "sums of half rows": (lambda t, i: t.astype(jnp.float16)[i].sum(1), (TABLE, ROWS)),
    "norm of rows": (norm_of_rows, (TABLE, ROWS)),
    "cross entropy": (cross_entropy, (LOGITS, LABELS)),
    "exponentials and one": (exponentials_and_one, (LOGITS, LABELS)),
    "the largest one's row": (lambda t, i: t[jnp.argmax(t, 0) % 21] * 2, (TABLE, ROWS)),
    "a slice": (lambda t, s: lax.dynamic_slice(t, (s, s * 4), (6, 19)) * 2, (TABLE, START)),
    "a slice of padding": (
        lambda t, s: lax.dynamic_slice(jnp.pad(t, ((2, 2), (3, 3))), (s, s), (9, 22)) * 2,
        (TABLE, START),
    ),
    "rows of what is put together": (
        lambda t, i: jnp.concatenate([t, jnp.exp(t)])[i[0]] + t[i[0]],
        (TABLE, ROWS),
    ),
    "columns of what is put together": (
        lambda t, i: jnp.concatenate([t, jnp.exp(t)], 1)[:, i[0] % 42] + 1,
        (TABLE, ROWS),
    ),
    "a row of rows": (lambda t, i: t[jnp.abs(i)[jnp.abs(i[:, 0]) % 3, 1]] + 1, (TABLE, ROWS)),
}


UPDATES = RNG.integers(-9, 9, (30, 21)).astype(np.float32)
PLACES = RNG.integers(-40, 60, 30).astype(np.int32)


def gradient_of_rows(t: Any, rows: Any, weights: Any) -> Any:
    return jax.grad(lambda t: (t[rows] * weights).sum())(t)


SCATTERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows added": (
        lambda x, i, u: x.at[i].add(u * 2),
        (TABLE[:30] // 1, PLACES, UPDATES),
    ),
    "rows of integers, the largest": (
        lambda x, i, u: x.at[i].max(u),
        (np.zeros((30, 21), np.int32), PLACES, UPDATES.astype(np.int32)),
    ),
    "segments": (
        lambda u, i: jax.ops.segment_sum(u, i, num_segments=11),
        (UPDATES, PLACES),
    ),
    "the gradient of rows": (gradient_of_rows, (TABLE, PLACES, UPDATES)),
    "numbers into bins": (lambda i, u: jnp.zeros(11).at[i].add(u), (PLACES, UPDATES[:, 0])),
    "counts": (lambda i: jnp.bincount(i, length=11), (PLACES,)),
    "points into bins": (lambda i, u: jnp.zeros((11, 3)).at[i].min(u), (PLACES, UPDATES[:, :3])),
}
PROGRAMS |= SCATTERS
LOOKING_UP = {"stablehlo.gather", "stablehlo.dynamic_slice", "stablehlo.scatter"}


def kernel(name: str) -> tuple[Any, Compute, list[Array]]:
    """The graph, the compute and the arguments of a program's kernel that looks places up."""
    function, arguments = PROGRAMS[name]
    program = load(function, *arguments)
    found = [(site, graph_of(site.kernel)) for site in sites(program)]
    site, graph = next(x for x in found if any(op.name in LOOKING_UP for op in x[1].ops))
    own = dict(zip(program.graph.arguments, map(np.asarray, arguments), strict=True))
    pairs = zip(site.arguments, graph.argument_types, strict=True)
    values = [
        own[v] if v in own else RNG.integers(0, 9, kind.shape).astype(numpy_dtype(kind.dtype))
        for v, kind in pairs
    ]
    return graph, compute_of(graph), values


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_schedule_reads_where_the_oracle_does(name: str) -> None:
    graph, compute, values = kernel(name)
    space, oracle = space_of(compute, host_target()), Oracle(graph, values)
    configs = space.sample(3, np.random.default_rng(3))
    configs[0] = space.heuristic()
    assert np.isfinite(space.features(configs)).all()
    assert flops_of(compute) >= 0
    found = [called(compute, space.schedule(c).steps, values) for c in configs]
    for results in (interpret(compute, values), *found):
        for k, (kind, result) in enumerate(zip(graph.result_types, results, strict=True)):
            reference = oracle.region(k, tuple((0, n) for n in kind.shape))
            shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
            wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
            assert wrong is None, str(wrong)


def test_a_row_of_an_argument_is_found_once_and_read_in_vectors() -> None:
    _, compute, _ = kernel("clipped rows")
    space = space_of(compute, host_target())
    text = str(emit(replay(compute, space.schedule(space.heuristic()), host_target())).text)
    assert "@llvm.smin.i64" in text
    assert "gather" not in text.replace("@llvm.smin", "")


def test_a_compute_says_where_data_decides() -> None:
    _, compute, _ = kernel("clipped rows")
    assert str(compute).splitlines()[-1] == (
        "out (i0<21, i1<21): y0[i0, i1] = a0[@0, i1] where @0 = a1[i0] in 0..39"
    )


PLACE = Lookup("@0", Load("a1", (Affine.axis("i"),), "i32"), 7)
ROW = Load("a0", (Affine.axis("@0"), Affine.axis("r")), "f32", lookups=(PLACE,))


def sums() -> Compute:
    """`y0[i] = the sum of row a1[i] of a0`, in a stage of its own."""
    here = (Affine.axis("i"),)
    total = Stage("all", (Axis("i", 4),), (Axis("r", 16),), (Store("t0", here),), (ROW,), SUM)
    out = Stage("out", (Axis("i", 4),), (), (Store("y0", here),), (Load("t0", here, "f32"),))
    tensors = (
        Tensor("a0", (8, 16), "f32", "argument"), Tensor("a1", (4,), "i32", "argument"),
        Tensor("y0", (4,), "f32", "result"), Tensor("t0", (4,), "f32", "temporary"),
    )  # fmt: skip
    return Compute(tensors, (total, out))


def test_what_is_looked_up_is_neither_packed_nor_streamed() -> None:
    nest = initial(sums(), host_target())
    place = r"a0 is read at places that data decides: @0 = a1\[i\] in 0..7$"
    with pytest.raises(ScheduleError, match=f"^pack: {place}"):
        Pack("all", "a0", "", "call", ((0, 1), (1, 1)), 8).apply(nest)
    with pytest.raises(ScheduleError, match=f"^stream: {place}"):
        Stream("all", "a0", "r").apply(nest)
    with pytest.raises(ScheduleError, match=f"^ahead: {place}"):
        Ahead("all", "a0", 4096).apply(nest)


def test_a_sum_of_what_is_looked_up_is_no_contraction() -> None:
    with pytest.raises(UnsupportedKernel, match=r"^expected operands at places that are known "):
        contraction(sums())


def test_lookups_follow_the_axes_of_their_loads() -> None:
    moved = ROW.substitute({"i": Affine.axis("j", 2)})
    assert moved.axes == ("j", "r")
    assert str(moved.lookups[0]) == "@0 = a1[2*j] in 0..7"
    assert sums().stages[0].walked(ROW).index[0] == Affine.axis("i")


@pytest.mark.parametrize("name", SCATTERS)
def test_tasks_of_a_scatter_share_no_element(name: str) -> None:
    _, compute, _ = kernel(name)
    space = space_of(compute, host_target())
    nest = replay(compute, space.schedule(space.heuristic()), host_target())
    onto = next(s for s in nest.stages if s.stage.onto)
    places = {a for x in onto.stage.lookups for a in x.load.axes}
    assert places == {a.name for a in onto.stage.reduce}
    assert not places & {x.root for x in onto.loops if x.kind in ("parallel", "vectorize")}


def test_what_is_merged_into_memory_is_not_held_in_registers() -> None:
    _, compute, _ = kernel("segments")
    name = next(s.name for s in compute.stages if s.onto)
    nest = Accumulate(name, "i0").apply(initial(compute, host_target()))
    with pytest.raises(
        ScheduleError, match=rf"^{name}: it adds to places that data decides, which "
    ):
        check_form(nest)


def test_scatters_that_merge_are_named_so() -> None:
    function, arguments = PROGRAMS["segments"]
    assert [x.label for x in sites(load(function, *arguments))] == ["scatter 11x21"]

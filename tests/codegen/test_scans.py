"""Cumulative reductions from the function to verified machine code, and faults planted in them."""

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import evaluate
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, map_all_loads
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.spaces.cpu_rows.streams import NEW_MEMORY, passes_caches
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import NonTemporal
from tests.support.faults import edited

CPU = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code of x86-64")
Change = Callable[[Any], Any]
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "along rows": (lambda x: jnp.cumsum(x, 0), (65, 33), "float32"),
    "along rows of lines": (lambda x: jnp.cumsum(x, 0), (37, 64), "float32"),
    "along lanes": (lambda x: jnp.cumsum(x, 1), (9, 101), "uint32"),
    "along lanes of lines": (lambda x: jnp.cumsum(x, 1), (9, 128), "uint32"),
    "backwards": (lambda x: lax.cumsum(x * 2, 1, reverse=True), (21, 33), "int64"),
    "product": (lambda x: lax.cumprod(x, 0, reverse=True), (19, 21), "float32"),
    "minimum": (lambda x: lax.cummin(x, 1, reverse=True), (9, 101), "float64"),
    "maximum": (lambda x: lax.cummax(x, 1), (6, 5, 7), "int32"),
    "logsumexp": (lambda x: lax.cumlogsumexp(x, 0), (40, 19), "float32"),
    "narrow": (lambda x: jnp.cumsum(x, 1), (6, 128), "bfloat16"),
    "in blocks": (lambda x: lax.cumsum(x), (4098,), "float32"),
    "in blocks backwards": (lambda x: lax.cummax(x, 0, reverse=True), (2050, 1), "float32"),
}


@cache
def site(name: str) -> Site:
    function, shape, dtype = CASES[name]
    with jax.enable_x64(True):
        found = sites(load(function, np.zeros(shape, jnp.dtype(dtype))))[0]
    assert found.pattern == "cumulative"
    return found


def built(name: str, schedule: Schedule, compute: Change, text: Change) -> Built:
    """The kernel of a case with a change of its compute, or of its LLVM text."""
    target = host_target()
    changed = compute(compute_of(graph_of(site(name).kernel)))
    emitted = emit(replay(changed, schedule, target))
    return Built(
        compile_object(text(emitted.text), target), emitted.scratch_bytes, (), 0, target.threads,
        algorithm=schedule.algorithm,
    )  # fmt: skip


def same(x: Any) -> Any:
    return x


def schedules(name: str, sampled: int) -> list[Schedule]:
    """The first candidates, and some others."""
    target = replace(host_target(), threads=max(2, host_target().threads))
    space = space_of(compute_of(graph_of(site(name).kernel)), target)
    configs = np.concatenate([space.firsts(), space.sample(sampled, np.random.default_rng(1))])
    space.features(configs)
    return [space.schedule(c) for c in configs[space.legal(configs)]]


@CPU
@pytest.mark.parametrize("name", CASES)
def test_cumulative_reductions_agree_with_the_oracle(name: str) -> None:
    found = schedules(name, 3)
    for k, schedule in enumerate(found):
        verdict = verify(site(name).kernel, built(name, schedule, same, same), thorough=k == 0)
        assert isinstance(verdict, Verdict), f"{schedule}: {verdict}"
        assert np.isfinite(verdict.error)
    blocked = {"in blocks", "in blocks backwards"}
    assert any("blocked_scan" in s.algorithm for s in found) == (name in blocked)


@CPU
@pytest.mark.parametrize("name", [n for n in CASES if "blocks" not in n and n != "narrow"])
def test_scans_whose_results_pass_the_caches_agree_with_the_oracle(name: str) -> None:
    compute = compute_of(graph_of(site(name).kernel))
    past = tuple(NonTemporal(s.name) for s in compute.stages if s.scans)
    for schedule in schedules(name, 5):
        further = replace(schedule, steps=(*schedule.steps, *past))
        verdict = verify(site(name).kernel, built(name, further, same, same))
        assert isinstance(verdict, Verdict), f"{further}: {verdict}"


def stored_past(compute: Compute, steps: int) -> tuple[int, int]:
    """Stores past the caches, and others, of a scan that writes so many rows out."""
    rows = rows_space_of(compute, TARGETS["x86-64-v3"])
    config = rows.heuristic()
    for kind, value in (("unroll", steps), ("chunk", 1), ("vectors", 1)):
        column = next(n for (k, _), n in rows.columns.items() if k == kind)
        config[column] = rows.knobs.knobs[column - 1].values.index(value)
    made = rows.schedule(config)
    names = [s.name for s in compute.stages if s.scans]
    further = replace(made, steps=(*made.steps, *map(NonTemporal, names)))
    text = emit(replay(compute, further, TARGETS["x86-64-v3"])).text
    stores = [x for x in text.splitlines() if x.lstrip().startswith("store <8 x float>")]
    past = sum("!nontemporal" in x for x in stores)
    return past, len(stores) - past


def test_the_row_from_which_a_scan_goes_on_stays_in_the_caches() -> None:
    found = sites(load(lambda x: jnp.cumsum(x, 0), np.zeros((64, 128), np.float32)))[0]
    compute = compute_of(graph_of(found.kernel))
    assert stored_past(compute, 8) == (7, 1)
    assert stored_past(compute, 4) == (3, 1)


def test_a_scan_whose_rows_registers_hold_stores_all_of_them_past_the_caches() -> None:
    """But where they hold a part of a row, and go on from the last one in memory."""

    def stores(columns: int) -> list[str]:
        shape = jax.ShapeDtypeStruct((65536, columns), jnp.float32)  # type: ignore[no-untyped-call]
        compute = compute_of(graph_of(sites(load(lambda x: jnp.cumsum(x, 0), shape))[0].kernel))
        space = rows_space_of(compute, TARGETS["znver4"])
        text = emit(replay(compute, space.schedule(space.heuristic()), TARGETS["znver4"])).text
        return [x for x in text.splitlines() if x.lstrip().startswith("store <16 x float>")]

    assert stores(128) and all("!nontemporal" in x for x in stores(128))
    assert not all("!nontemporal" in x for x in stores(512))


def test_first_candidates_store_large_scans_past_the_caches() -> None:
    """But for results that are new memory in each call."""

    def stores_past(rows: int, columns: int, axis: int) -> bool:
        shape = jax.ShapeDtypeStruct((rows, columns), jnp.float32)  # type: ignore[no-untyped-call]
        found = sites(load(lambda x: jnp.cumsum(x, axis), shape))[0]
        space = space_of(compute_of(graph_of(found.kernel)), TARGETS["x86-64-v3"])
        steps = space.schedule(space.firsts()[0]).steps
        return any(isinstance(x, NonTemporal) for x in steps)

    assert stores_past(65536, 128, 0) and stores_past(512, 32000, 1)
    assert not stores_past(4096, 128, 0) and not stores_past(65536, 1024, 0)


def test_each_result_of_a_scan_is_new_memory_or_not_by_its_own_size() -> None:
    shape = jax.ShapeDtypeStruct((40960, 1024), jnp.float32)  # type: ignore[no-untyped-call]
    found = sites(load(lambda x: jnp.cumsum(x, 0), shape))[0]
    compute = compute_of(graph_of(found.kernel))
    (stage,), (x, y) = compute.stages, compute.tensors
    two = replace(stage, stores=(*stage.stores, replace(stage.stores[0], tensor="other")))
    both = replace(compute, tensors=(x, y, replace(y, name="other")), stages=(two,))
    assert y.bytes < NEW_MEMORY < 2 * y.bytes
    assert passes_caches(both, two, TARGETS["x86-64-v3"])


def scanning(change: Callable[[Stage], Stage]) -> Callable[[Compute], Compute]:
    """With another stage of the results."""

    def changed(compute: Compute) -> Compute:
        *others, last = compute.stages
        return replace(compute, stages=(*others, change(last)))

    return changed


def exclusive(stage: Stage) -> Stage:
    """Each result is of what comes before its own element."""
    (axis,) = stage.reduce
    before = {axis.name: Affine.axis(axis.name) + -1}
    moved = {x: x.substitute(before) for x in stage.loads}
    return replace(stage, values=map_all_loads(stage.values, moved))


def lost_lane(text: str) -> str:
    """The carry of a vector is that of its last lane but one."""
    lanes = host_target().vector_bytes // 4
    carried, earlier = (", ".join([f"i32 {lane}"] * lanes) for lane in (lanes - 1, lanes - 2))
    assert carried in text
    return text.replace(carried, earlier)


BEGUN = r"select i1 %\w+, (<\d+ x float> zeroinitializer)"
FAULTS: dict[str, tuple[str, Change, Change]] = {
    "the carry between blocks of rows is lost": (
        "along rows", same, edited(BEGUN, r"select i1 true, \1"),
    ),
    "a result is of what comes before its element": ("along rows", scanning(exclusive), same),
    "the last lane of a vector is lost": ("along lanes", same, lost_lane),
    "the carry of a block is lost": ("in blocks", same, same),
}  # fmt: skip


def without_carries(schedule: Schedule) -> Built:
    """A blocked scan whose blocks begin at nothing."""
    target = host_target()
    nest = replay(compute_of(graph_of(site("in blocks").kernel)), schedule, target)
    last = nest.stages[-1]
    nest = nest.put(replace(last, stage=replace(last.stage, begins=())))
    emitted = emit(nest)
    code = compile_object(emitted.text, target)
    return Built(code, emitted.scratch_bytes, (), 0, target.threads, algorithm=schedule.algorithm)


@CPU
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    name, compute, text = FAULTS[fault]
    schedule = schedules(name, 0)[0]
    if name == "in blocks":
        wrong = without_carries(schedule)
    else:
        wrong = built(name, schedule, compute, text)
    failure = verify(site(name).kernel, wrong)
    assert isinstance(failure, Failure), fault
    assert "elements wrong" in failure.message


def test_the_oracle_accumulates_what_its_windows_hold() -> None:
    from hlotune.hlo.oracle import evaluation
    from hlotune.hlo.oracle.window import reduce_window

    rng = np.random.default_rng(0)
    for name in ("along rows", "backwards", "product", "minimum", "maximum", "narrow"):
        graph = graph_of(site(name).kernel)
        (kind,) = graph.argument_types
        x = (
            rng.integers(-9, 9, kind.shape)
            if kind.dtype[0] in "iu"
            else rng.normal(size=kind.shape)
        )
        x = x.astype(np.int64) if kind.dtype == "i64" else x
        (ours,) = evaluate(graph, [x])
        rules = evaluation.BY_BOX
        before = rules["stablehlo.reduce_window"]
        rules["stablehlo.reduce_window"] = lambda r: reduce_window(r)
        try:
            (plain,) = evaluate(graph, [x])
        finally:
            rules["stablehlo.reduce_window"] = before
        np.testing.assert_allclose(ours.value, plain.value, rtol=1e-6)


def test_windows_that_accumulate_nothing_are_not_taken_for_it() -> None:
    def sums(x: Any, padding: Any, size: int = 8) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (size, 1), (1, 1), padding)

    x = np.zeros((8, 400_000), np.float32)
    for padding, size in ([(6, 1), (0, 0)], 8), ([(6, 0), (0, 0)], 7), ([(7, 7), (0, 0)], 8):
        found = sites(load(lambda x, p=padding, n=size: sums(x, p, n), x))
        assert all(s.pattern != "cumulative" for s in found)


def test_a_scan_stands_alone_and_goes_along_one_axis() -> None:
    compute = compute_of(graph_of(site("along rows").kernel))
    (scan,) = compute.stages
    assert str(compute).endswith("scan0 (i0<33, r0<65): y0[r0, i0] = sum up to r0 a0[r0, i0]")
    twice = replace(scan, parallel=(), reduce=(*scan.reduce, *scan.parallel))
    with pytest.raises(ScheduleError, match="a scan goes along one axis"):
        replay(replace(compute, stages=(twice,)), Schedule("direct"), host_target())
    with pytest.raises(ScheduleError, match="expected a scan along an axis that some number of"):
        replay(compute, Schedule("blocked_scan(2)"), host_target())


def test_a_cumulative_reduction_is_named_and_ends_its_kernel() -> None:
    def program(x: Any) -> Any:
        return jnp.cumsum(jnp.sin(x), 0) * 2.0

    found = sites(load(program, np.zeros((400, 1000), np.float32)))
    labels = [s.label for s in found]
    assert labels[0] == "sine+cumsum 400x1000"
    assert len([s for s in found if s.pattern == "cumulative"]) == 1

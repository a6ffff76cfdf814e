"""Ends of axes: what lies beyond is not computed, not counted, and not read."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.ir.nest import initial
from hlotune.schedules.patterns.row_limit import operations_of
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import EndAt
from tests.support.attentions import attention_sites, f32

TARGET = TARGETS["znver4"]


def compute(name: str) -> Compute:
    (site,) = attention_sites(name)
    return compute_of(graph_of(site.kernel))


def ends(found: Compute) -> set[str]:
    return {str(e) for s in found.stages for _, e in s.ends}


CAUSAL = compute("causal")
SPACE = space_of(CAUSAL, TARGET)
FIRST = SPACE.schedule(SPACE.heuristic())


def test_a_causal_mask_ends_all_stages_over_keys() -> None:
    ended = [s for s in CAUSAL.stages if s.ends]
    assert len(ended) == 6
    assert ends(CAUSAL) == {"i1 + 1", "i2 + 1"}
    assert ends(compute("by hand")) == {"i1 + 17", "i2 + 17"}


@pytest.mark.parametrize("name", ["plain", "bias and mask", "decoding"])
def test_other_masks_end_nothing(name: str) -> None:
    assert not ends(compute(name))


@pytest.mark.parametrize(
    ("mask", "end"),
    [
        ("t[:, None] < s[None]", "i0 + 1"),
        ("t[:, None] <= s[None]", None),
        ("s[None] >= t[:, None] + 1", "i0 + 1"),
        ("(t[:, None] < s[None]) | (s[None] == 0)", None),
    ],
)
def test_masks_say_which_way_round_they_are(mask: str, end: str | None) -> None:
    """With the second mask row 0 has nothing left; the last mask is no triangle."""

    def attention(q: jnp.ndarray, k: jnp.ndarray, v: jnp.ndarray) -> jnp.ndarray:
        t, s = jnp.arange(9), jnp.arange(9)
        masked = eval(mask, {"t": t, "s": s})
        scores = jnp.where(masked, -jnp.inf, q @ k.T)
        weights = jnp.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ v

    found = compute_of(load(attention, *(f32(9, 16),) * 3).graph)
    assert ends(found) >= ({end} if end else set())
    assert bool(ends(found)) is bool(end)


def test_operations_beyond_ends_are_not_counted() -> None:
    whole = replace(CAUSAL, stages=tuple(replace(s, ends=()) for s in CAUSAL.stages))
    assert 0.5 < flops_of(CAUSAL) / flops_of(whole) < 0.56
    product = next(s for s in CAUSAL.stages if s.ends)
    assert product.needed_points == 2 * 16 * 37 * 38 // 2
    assert operations_of(product) > 0


def test_loops_end_at_the_multiple_behind_the_end() -> None:
    steps = [s for s in FIRST.steps if isinstance(s, EndAt)]
    assert len(steps) == 5
    assert len({s.multiple for s in steps}) == 1
    replay(CAUSAL, FIRST, TARGET)


def refused(steps: tuple[object, ...]) -> str:
    with pytest.raises(ScheduleError) as error:
        replay(CAUSAL, Schedule(FIRST.algorithm, steps), TARGET)  # type: ignore[arg-type]
    return str(error.value)


def test_a_reader_that_goes_on_beyond_is_refused() -> None:
    kept = tuple(s for s in FIRST.steps if not (isinstance(s, EndAt) and s.stage == "values"))
    assert "values reads of" in refused(kept)
    assert "beyond its end along s: let it end there too" in refused(kept)


def test_loops_that_do_not_come_to_the_multiple_are_refused() -> None:
    odd = tuple(replace(s, multiple=3) if isinstance(s, EndAt) else s for s in FIRST.steps)
    assert "along s do not come to multiples of 3: walk it in steps that divide" in refused(odd)


def test_an_end_needs_a_stage_inside_another() -> None:
    nest = EndAt("scores", "s", 16).apply(unscheduled(CAUSAL, FIRST.algorithm, TARGET))
    with pytest.raises(ScheduleError, match="scores stands at the root, where its region is whole"):
        check(nest)


@pytest.mark.parametrize(
    ("stage", "axis", "multiple", "message"),
    [
        ("scores", "d", 16, "scores has no end along d"),
        ("scores", "s", 0, "expected a positive multiple, got 0"),
    ],
)
def test_what_has_no_end_is_refused(stage: str, axis: str, multiple: int, message: str) -> None:
    nest = unscheduled(CAUSAL, FIRST.algorithm, TARGET)
    with pytest.raises(ScheduleError, match=message):
        EndAt(stage, axis, multiple).apply(nest)


def test_an_end_that_may_lie_ahead_of_the_axis_is_refused() -> None:
    stages = tuple(
        replace(s, ends=((s.parallel[2].name, Affine.axis("i1")),)) if s.ends else s
        for s in CAUSAL.stages[:1]
    )
    nest = initial(replace(CAUSAL, stages=stages), TARGET)
    with pytest.raises(ScheduleError, match="the end i1 may lie ahead of the axis"):
        EndAt(stages[0].name, stages[0].parallel[2].name, 1).apply(nest)

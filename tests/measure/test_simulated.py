"""The device without hardware: its formula by hand, its noise, its clock, its failures."""

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.device import (
    BUILD_S,
    CALLS,
    SAMPLES,
    TRIAL_S,
    SimulatedDevice,
)
from hlotune.measure.simulated.time_formula import (
    arithmetic_cycles,
    levels,
    simulated_s,
    stage_s,
    transfer_cycles,
)
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from tests.support.computes import Case, gemm, named, tiled

ZNVER4 = TARGETS["znver4"]
SMALL = gemm(48, 32, 32)
TILE = {"i0": 6, "i1": 2}
"""12 vectors of sums, 6 broadcasts and 2 vectors loaded a step."""


def nest(case: Case = SMALL, threads: int = 2, **numbers: Any) -> LoopNest:
    target = replace(ZNVER4, threads=threads)
    return replay(case.compute, tiled(case, target, **numbers), target)


def device(**options: float) -> SimulatedDevice:
    return SimulatedDevice(ZNVER4, **options)  # type: ignore[arg-type]


def candidate(case: Case = SMALL, **numbers: Any) -> Candidate:
    return Candidate(case.kernel, tiled(case, ZNVER4, **numbers))


def measured(on: SimulatedDevice, what: Candidate) -> Trial:
    (built,) = on.build([what])
    return on.measure(what.kernel, [(what, built)])[0]


def test_arithmetic_is_counted_as_by_hand() -> None:
    tiled_nest = nest(register=TILE)
    contract = tiled_nest.stage("contract")
    steps = (48 // 6) * 32
    by_hand = steps * (12 / 2 + 1.5) + 2 * 8 * 12
    assert arithmetic_cycles(tiled_nest, contract, levels(tiled_nest, contract)) == by_hand


def test_few_sums_wait_for_the_latency_of_a_multiply_add() -> None:
    plain = nest(register={"i0": 1, "i1": 1})
    contract = plain.stage("contract")
    steps, tiles = 48 * 2 * 32, 48 * 2
    by_hand = steps * (4 + 1.5) + 2 * tiles
    assert arithmetic_cycles(plain, contract, levels(plain, contract)) == by_hand


def test_what_fits_into_the_first_cache_is_read_once() -> None:
    tiled_nest = nest(register=TILE)
    contract = tiled_nest.stage("contract")
    bytes_once = 4 * (48 * 32 + 32 * 32 + 48 * 32)
    by_hand = bytes_once * (1 / 40 + 1 / 16 + 1 / 4)
    found = transfer_cycles(tiled_nest, contract, levels(tiled_nest, contract))
    assert found == pytest.approx(by_hand)


def test_two_tasks_take_half_the_time_of_one_and_three_take_two_thirds() -> None:
    one = nest(register=TILE, group={"i0": 8})
    two = nest(register=TILE, group={"i0": 4})
    three = nest(register=TILE, group={"i0": 3})
    times = [stage_s(n, n.stage("contract")) for n in (one, two, three)]
    assert times[1] == pytest.approx(times[0] / 2, rel=0.02)
    assert times[2] == pytest.approx(times[0] * 2 / 3, rel=0.02)


def test_a_second_task_costs_a_launch() -> None:
    """Too small a kernel is slower on two threads."""
    tiny = gemm(2, 16, 4)
    both = nest(tiny, register={"i0": 1, "i1": 1})
    one = nest(tiny, register={"i0": 2, "i1": 1})
    assert simulated_s(both) > 2 * simulated_s(one)


@pytest.mark.parametrize("name", ["C2", "C6", "C9", "gemm"])
def test_the_heuristic_is_better_than_most_schedules(name: str) -> None:
    case, rng = named(name), np.random.default_rng(0)
    space = case.space(ZNVER4)
    configs = [space.heuristic(), *space.sample(40, rng)]
    times = [simulated_s(replay(case.compute, space.schedule(c), ZNVER4)) for c in configs]
    assert times[0] < np.percentile(times[1:], 10)


@pytest.mark.parametrize("name", ["C6", "gemm"])
def test_no_schedule_is_faster_than_two_multiply_adds_a_cycle(name: str) -> None:
    case = named(name)
    space = case.space(ZNVER4)
    fastest_s = case.compute.stage("contract").flops / (2 * 2 * 2 * 16 * 4e9)
    for config in (space.heuristic(), *space.sample(40, np.random.default_rng(1))):
        assert simulated_s(replay(case.compute, space.schedule(config), ZNVER4)) > fastest_s


def test_luck_belongs_to_the_nest_and_noise_to_the_sample() -> None:
    what = candidate(register=TILE)
    lucky = device(noise=0.0, seed=3)
    first, second = measured(lucky, what), measured(lucky, what)
    assert first == second
    other = device(noise=0.0, seed=4)
    assert measured(other, what).time_s != first.time_s
    noisy = device(noise=0.1)
    assert measured(noisy, what).time_s != measured(noisy, what).time_s


def test_without_luck_and_noise_the_formula_remains() -> None:
    trial = measured(device(luck=0.0, noise=0.0), candidate(register=TILE))
    assert trial.time_s == pytest.approx(simulated_s(nest(register=TILE)))


def test_noise_is_as_large_as_was_asked_for() -> None:
    on, what = device(noise=0.1, luck=0.0), candidate(register=TILE)
    samples = [
        s
        for _ in range(40)
        if isinstance(outcome := measured(on, what).outcome, Measurement)
        for s in outcome.samples_s
    ]
    assert len(samples) == 40 * SAMPLES
    assert np.std(np.log(samples)) == pytest.approx(0.1, rel=0.2)


def test_the_same_seed_tells_the_same_story() -> None:
    times = [measured(device(seed=5), candidate(register=TILE)).time_s for _ in range(2)]
    assert times[0] == times[1]


def test_the_clock_goes_on_with_building_and_calling() -> None:
    on = device(luck=0.0, noise=0.0)
    trial = measured(on, candidate(register=TILE))
    assert trial.time_s
    assert on.now() == pytest.approx(BUILD_S + TRIAL_S + CALLS * trial.time_s)


def test_a_schedule_that_does_not_apply_is_a_failure() -> None:
    wrong = Candidate(SMALL.kernel, Schedule("direct", (Split("out", "nowhere", (2,)),)))
    outcome = measured(device(), wrong).outcome
    assert isinstance(outcome, Failure)
    assert outcome.kind == "schedule"


def test_finals_give_as_many_pairs_as_were_asked_for() -> None:
    on, what = device(), candidate(register=TILE)
    comparison = on.compare(SMALL.kernel, list(zip([what], on.build([what]), strict=True)), pairs=9)
    (ours,) = comparison.candidates
    assert isinstance(ours, Measurement)
    assert len(ours.samples_s) == len(comparison.default.samples_s) == 9
    default_s = on.default(SMALL.kernel).time_s
    assert median(comparison.default.samples_s) == pytest.approx(default_s, rel=0.05)

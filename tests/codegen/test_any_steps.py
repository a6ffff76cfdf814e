"""Steps put together blindly: refused with ScheduleError, or right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.ir.nest import Layout, LoopNest
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    Clip,
    ComputeAt,
    LayOut,
    Narrow,
    Overrun,
    Pack,
    Parallel,
    Peel,
    Prefetch,
    Preload,
    Reorder,
    Split,
    Spread,
    Step,
    Stream,
    Tensorize,
    Unroll,
    Vectorize,
    VectorizeReduction,
)
from tests.support.computes import Case, around_scratch, conv, gemm
from tests.support.winograd_cases import windowed

HOST = host_target()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Steps are drawn for what an algorithm makes of a kernel."""

    case: Case
    algorithm: str = "direct"

    def __str__(self) -> str:
        return f"{self.algorithm} {self.case}"


STAGED = Drawn(around_scratch(5, 6, 3, 9))
CASES = (
    Drawn(gemm(10, 21, 6)),
    Drawn(gemm(7, 18, 5, frozen=True)),
    Drawn(conv(5, 6, 3, 9)),
    STAGED,
    Drawn(windowed(size=(5, 6), channels=3, features=9, frozen=True), "winograd(2)"),
)


def any_layout(rank: int, rng: np.random.Generator) -> Layout:
    """A random layout of a tensor, in blocks every other time."""
    layout = tuple((d, 1) for d in rng.permutation(rank).tolist())
    if rng.random() < 0.5:
        last = layout[-1][0] if rng.random() < 0.9 else 7
        layout = ((last, int(rng.choice([0, 4, 8, 16]))), *layout)
    return layout


def any_step(nest: LoopNest, rng: np.random.Generator) -> Step:
    """A step with arguments that are mostly names and numbers of the nest."""
    stages = [s.stage.name for s in nest.stages]
    name = str(rng.choice(stages))
    stage, loops = nest.stage(name).stage, [x.axis for x in nest.stage(name).loops]
    axis, parallel, last = (str(rng.choice(x)) for x in (
        loops, [a.name for a in stage.parallel], [a.name for a in stage.axes]
    ))  # fmt: skip
    numbers = tuple(int(n) for n in rng.integers(1, 9, size=rng.integers(1, 4)))
    user = str(rng.choice(stages))
    place = str(rng.choice([x.axis for x in nest.stage(user).loops]))
    tensor = str(rng.choice([x.tensor for x in stage.loads]))
    loaded, stored = (
        any_layout(len(nest.compute.tensor(x).shape), rng) for x in (tensor, stage.stores[0].tensor)
    )
    lanes = int(rng.choice([0, 4, 8]))
    where = ("", str(rng.choice(["call", "load"]))) if rng.random() < 0.5 else (user, place)
    steps: list[Step] = [
        Split(name, axis, numbers), Reorder(name, tuple(rng.permutation(loops).tolist())),
        Parallel(name, axis), Vectorize(name, loops[-1]), Unroll(name, axis),
        ComputeAt(name, user, place), Accumulate(name, axis if rng.random() < 0.7 else ""),
        Clip(name, axis), Peel(name, axis), Pack(name, tensor, *where, loaded, lanes),
        AddUp(name), LayOut(name, stored), Spread(name, int(rng.choice([0, 3, 16, 200]))),
        Preload(name), Overrun(name, parallel), Prefetch(name, tensor),
        Stream(name, tensor, axis), Narrow(name), Tensorize(name, parallel, last),
        VectorizeReduction(name, loops[-1]),
    ]  # fmt: skip
    return steps[int(rng.integers(len(steps)))]


def of_a_sketch(drawn: Drawn, rng: np.random.Generator) -> list[Step | None]:
    """The steps of some config, a few left out, and places for others between them."""
    space = space_of(drawn.case.compute, HOST)
    while True:
        schedule = space.schedule(space.sample(1, rng)[0])
        if schedule.algorithm == drawn.algorithm:
            break
    plan: list[Step | None] = [s for s in schedule.steps if rng.random() < 0.9]
    for k in sorted(rng.integers(len(plan) + 1, size=rng.integers(1, 12)).tolist(), reverse=True):
        plan.insert(k, None)
    return plan


def any_schedule(
    drawn: Drawn, rng: np.random.Generator, plan: Sequence[Step | None]
) -> Schedule | None:
    """Steps, any where the plan has none, each where it applies to what those before have made.

    None where the nest is refused.  Anything but a ScheduleError fails the test.
    """
    compute = drawn.case.compute
    nest, steps = unscheduled(compute, drawn.algorithm, HOST), list[Step]()
    for planned in plan:
        step = planned or any_step(nest, rng)
        try:
            nest = step.apply(nest)
            steps.append(step)
        except ScheduleError:
            continue
    schedule = Schedule(drawn.algorithm, tuple(steps))
    try:
        replay(compute, schedule, HOST)
    except ScheduleError:
        return None
    return schedule


def count_right(drawn: Drawn, seed: int, schedules: int) -> int:
    """How many of so many random schedules are legal and have code; each of these is right."""
    rng, case = np.random.default_rng(seed), drawn.case
    references, right = References(case.kernel), 0
    for n in range(schedules):
        plan = of_a_sketch(drawn, rng) if n % 4 == 3 else [None] * int(rng.integers(1, 30))
        schedule = any_schedule(drawn, rng, plan)
        if schedule is None:
            continue
        try:
            built = build(case.compute, schedule, HOST)
        except BuildError as error:
            assert "mend what emitted it" not in str(error), (schedule.to_json(), error)
            continue
        verdict = verify(case.kernel, built, references=references)
        assert isinstance(verdict, Verdict), (schedule.to_json(), verdict)
        right += 1
    return right


@pytest.mark.parametrize("drawn", CASES, ids=str)
def test_steps_put_together_blindly_are_refused_or_right(drawn: Drawn) -> None:
    assert count_right(drawn, seed=0, schedules=60) > 12


@pytest.mark.slow
@pytest.mark.parametrize("drawn", CASES, ids=str)
def test_many_steps_put_together_blindly_are_refused_or_right(drawn: Drawn) -> None:
    assert count_right(drawn, seed=1, schedules=2000) > 400


ONCE_WRONG: dict[str, tuple[Drawn, tuple[Step, ...]]] = {
    "a copy that lies otherwise than its loops go": (
        STAGED,
        (
            Split("contract", "i1", (6, 2)),
            Pack("pre0", "a0", "", "call", ((0, 16), (1, 1), (2, 1), (0, 1)), 4),
            LayOut("a0.packed", ((1, 1), (0, 1), (2, 1))),
        ),
    ),
    "a copy in registers": (
        STAGED,
        (
            Pack("pre0", "a0", "", "call", ((0, 16), (1, 1), (2, 1), (0, 1)), 4),
            Accumulate("a0.packed", "p0.v"),
        ),
    ),
    "elements left free between blocks": (
        Drawn(gemm(10, 21, 6)),
        (Pack("contract", "a1", "", "call", ((1, 4), (0, 1), (1, 1)), 4), Spread("a1.packed", 3)),
    ),
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_what_was_once_wrong_is_right(name: str) -> None:
    drawn, steps = ONCE_WRONG[name]
    built = build(drawn.case.compute, Schedule(drawn.algorithm, steps), HOST)
    verdict = verify(drawn.case.kernel, built)
    assert isinstance(verdict, Verdict), verdict

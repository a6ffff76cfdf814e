"""Steps put together blindly: refused with ScheduleError, or right."""

import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.measure.references import References
from hlotune.measure.targets import host_target
from hlotune.measure.verify import Verdict, verify
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.nest import LoopNest, initial
from hlotune.schedules.replay import replay
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.steps import (
    Accumulate,
    AddUp,
    Clip,
    ComputeAt,
    Pack,
    Parallel,
    Peel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from tests.computes import Case, conv, gemm

CASES = gemm(10, 21, 6), gemm(7, 18, 5, frozen=True), conv(5, 6, 3, 9)


def any_step(nest: LoopNest, rng: np.random.Generator) -> Step:
    """A step with arguments that are mostly names and numbers of the nest."""
    stages = [s.stage.name for s in nest.stages]
    name = str(rng.choice(stages))
    loops = [x.axis for x in nest.stage(name).loops]
    axis = str(rng.choice(loops))
    numbers = tuple(int(n) for n in rng.integers(1, 9, size=rng.integers(1, 4)))
    user = str(rng.choice(stages))
    place = str(rng.choice([x.axis for x in nest.stage(user).loops]))
    tensor = str(rng.choice([x.tensor for x in nest.stage(name).stage.loads]))
    layout = tuple((d, 1) for d in rng.permutation(len(nest.compute.tensor(tensor).shape)).tolist())
    if rng.random() < 0.5:
        last = layout[-1][0] if rng.random() < 0.9 else 7
        layout = ((last, int(rng.choice([0, 4, 8, 16]))), *layout)
    lanes = int(rng.choice([0, 4, 8]))
    where = ("", str(rng.choice(["call", "load"]))) if rng.random() < 0.5 else (user, place)
    steps: list[Step] = [
        Split(name, axis, numbers), Reorder(name, tuple(rng.permutation(loops).tolist())),
        Parallel(name, axis), Vectorize(name, loops[-1]), Unroll(name, axis),
        ComputeAt(name, user, place), Accumulate(name, axis if rng.random() < 0.7 else ""),
        Clip(name, axis), Peel(name, axis), Pack(name, tensor, *where, layout, lanes),
        AddUp(name),
    ]  # fmt: skip
    return steps[int(rng.integers(len(steps)))]


def any_schedule(case: Case, rng: np.random.Generator, most: int) -> Schedule | None:
    """Steps of which each applies to what those before have made; None where the nest is refused.

    Anything but a ScheduleError fails the test.
    """
    nest, steps = initial(case.compute, host_target()), list[Step]()
    for _ in range(3 * most):
        step = any_step(nest, rng)
        try:
            nest = step.apply(nest)
            steps.append(step)
        except ScheduleError:
            continue
        if len(steps) == most:
            break
    schedule = Schedule("direct", tuple(steps))
    try:
        replay(case.compute, schedule, host_target())
    except ScheduleError:
        return None
    return schedule


@pytest.mark.parametrize("case", CASES, ids=str)
def test_steps_put_together_blindly_are_refused_or_right(case: Case) -> None:
    rng, references = np.random.default_rng(0), References(case.kernel)
    right = 0
    for _ in range(200):
        schedule = any_schedule(case, rng, int(rng.integers(1, 12)))
        if schedule is None:
            continue
        try:
            built = build(case.compute, schedule, host_target())
        except BuildError:
            continue
        verdict = verify(case.kernel, built, references=references)
        assert isinstance(verdict, Verdict), (schedule.to_json(), verdict)
        right += 1
    assert right > 20

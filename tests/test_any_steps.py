"""Steps put together blindly: refused with ScheduleError, or right."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.measure.references import References
from hlotune.measure.targets import host_target
from hlotune.measure.verify import Verdict, verify
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.nest import Layout, LoopNest
from hlotune.schedules.replay import replay, unscheduled
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.steps import (
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
)
from tests.computes import NHWC, Case, conv, gemm, whole
from tests.winograd_cases import windowed

HOST = host_target()


def padded() -> Case:
    """A convolution whose border lies around a stage in scratch."""
    x, w = whole(1, 5, 6, 3), whole(3, 3, 3, 9, seed=1)

    def function(x: Any, w: Any) -> Any:
        inner = jnp.maximum(x + 1, 0)
        return lax.conv_general_dilated(inner, w, (1, 1), "SAME", dimension_numbers=NHWC)

    return Case("padded", function, (x, w))


@dataclass(frozen=True, slots=True)
class Drawn:
    """Steps are drawn for what an algorithm makes of a kernel."""

    case: Case
    algorithm: str = "direct"
    least: int = 21
    """Schedules of 200 that are built and right."""

    def __str__(self) -> str:
        return f"{self.algorithm} {self.case}"


CASES = (
    Drawn(gemm(10, 21, 6)),
    Drawn(gemm(7, 18, 5, frozen=True)),
    Drawn(conv(5, 6, 3, 9)),
    Drawn(padded()),
    Drawn(windowed(size=(5, 6), channels=3, features=9, frozen=True), "winograd(2)"),
)


def any_layout(rank: int, rng: np.random.Generator) -> Layout:
    """Of a tensor, in blocks every other time."""
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
    ]  # fmt: skip
    return steps[int(rng.integers(len(steps)))]


def any_schedule(drawn: Drawn, rng: np.random.Generator, most: int) -> Schedule | None:
    """Steps of which each applies to what those before have made; None where the nest is refused.

    Anything but a ScheduleError fails the test.
    """
    compute = drawn.case.compute
    nest, steps = unscheduled(compute, drawn.algorithm, HOST), list[Step]()
    for _ in range(3 * most):
        step = any_step(nest, rng)
        try:
            nest = step.apply(nest)
            steps.append(step)
        except ScheduleError:
            continue
        if len(steps) == most:
            break
    schedule = Schedule(drawn.algorithm, tuple(steps))
    try:
        replay(compute, schedule, HOST)
    except ScheduleError:
        return None
    return schedule


@pytest.mark.parametrize("drawn", CASES, ids=str)
def test_steps_put_together_blindly_are_refused_or_right(drawn: Drawn) -> None:
    rng, case = np.random.default_rng(0), drawn.case
    references, right = References(case.kernel), 0
    for _ in range(200):
        schedule = any_schedule(drawn, rng, int(rng.integers(1, 12)))
        if schedule is None:
            continue
        try:
            built = build(case.compute, schedule, HOST)
        except BuildError:
            continue
        verdict = verify(case.kernel, built, references=references)
        assert isinstance(verdict, Verdict), (schedule.to_json(), verdict)
        right += 1
    assert right >= drawn.least

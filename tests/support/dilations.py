"""Transposed convolutions, their divisors, and whether all schedules of one are right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import load as load_built
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.buffers import Placement
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case, call, whole

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def divisors(compute: Compute) -> set[int]:
    loads = [x for s in compute.stages for x in s.loads]
    return {x.divisor(d) for x in loads for d in range(len(x.index))}


def ragged(spec: Any = NHWC, window: int = 3) -> Case:
    """Results of 11x39: two divides neither.  Others of their shape are added to them."""
    x, w, r = whole(1, 6, 20, 4), whole(window, window, 4, 20, seed=1), whole(1, 11, 39, 20, seed=2)
    if spec == NCHW:
        x, r = (a.transpose(0, 3, 1, 2).copy() for a in (x, r))
        w = w.transpose(3, 2, 0, 1).copy()
    padding = [((window - 1) // 2, window // 2)] * 2

    def function(x: Any, w: Any, r: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), padding, lhs_dilation=(2, 2), dimension_numbers=spec
        )
        return jnp.maximum(y + r, 0)

    return Case(f"ragged {spec[0]} {window}", function, (x, w, r))


def check_schedules(
    case: Case, algorithm: str, target: CpuTarget | None = None, placement: Placement = "behind",
    *, drawn: int = 6,
) -> None:  # fmt: skip
    """Packed and not, clipped and not, along whichever axis the vectors go."""
    target = target or host_target()
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    space = space_of(case.compute, target)
    configs = *space.firsts(), *space.sample(drawn, np.random.default_rng(0))
    drawn_schedules = [space.schedule(c) for c in configs]
    schedules = [s for s in drawn_schedules if is_legal(case.compute, s, target)]
    assert len(schedules) > 0.9 * len(configs)
    assert any(s.algorithm.startswith(algorithm) for s in schedules)
    for schedule in schedules:
        loaded = load_built(build(case.compute, schedule, target))
        (got,) = call(loaded, case, serial(), placement)
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted, err_msg=str(schedule))


def is_legal(compute: Compute, schedule: Schedule, target: CpuTarget) -> bool:
    """Whether its steps take it: some that are drawn write out too many statements."""
    try:
        replay(compute, schedule, target)
    except ScheduleError:
        return False
    return True

"""What a program takes as XLA compiles it: a first look, to choose what is worth tuning."""

import time

from hlotune.deploy.flat_calls import called
from hlotune.deploy.inputs import example_inputs
from hlotune.deploy.timer import Function
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program

CALLS = 10
ENOUGH_S = 0.5


def default_time_s(program: Program) -> float:
    """Seconds of the fastest of some blocking calls on random values."""
    inputs, default = example_inputs(program), jitted(program)
    _call_s(program, default, inputs.values)
    end_s = time.perf_counter() + ENOUGH_S
    best_s = _call_s(program, default, inputs.values)
    for _ in range(CALLS):
        if time.perf_counter() > end_s:
            break
        best_s = min(best_s, _call_s(program, default, inputs.values))
    return best_s


def _call_s(program: Program, default: Function, values: tuple[object, ...]) -> float:
    begin_s = time.perf_counter()
    for result in called(program, default, values):
        result.block_until_ready()
    return time.perf_counter() - begin_s

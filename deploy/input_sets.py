"""The inputs that a program is checked on, by what a call of its default takes.

One rule for all that check a program: a program whose call takes a second is checked with its
example alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.flat_calls import called_once, to_give_away
from hlotune.deploy.inputs import Inputs, example_inputs, tame_inputs
from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.mlir.compile_times import compiling
from hlotune.measure.timing.timing import ONCE_S

ORACLE_S = 120.0
"""The time for evaluating a program on all input sets."""
TAMING, LEAST_TAMING_S = 0.1, 1.0
"""Scales of random inputs are tried for this share of the oracle's time, or for so many seconds."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InputSets:
    """Inputs to check a program on, and what calls of its default on the first of them took."""

    sets: tuple[Inputs, ...]
    compile_s: float
    """What the default's first call took: XLA compiles it then."""
    call_s: float
    """What one call of the default takes."""
    is_sample: bool = False
    """Whether that call was made on the first of the sets as it is, and takes long."""


def input_sets(
    program: Program,
    default: Callable[..., Any],
    platform: str,
    *,
    oracle_limit_s: float = ORACLE_S,
    seed: int = 0,
) -> InputSets:
    """Calls the default on the example, once where the call takes long, and finds the sets."""
    example = example_inputs(program, seed)
    with compiling() as spent:
        compile_s, results = _timed_call(program, default, example, platform)
    call_s = compile_s - spent.seconds
    is_long = bool(spent.seconds) and call_s >= ONCE_S
    if not is_long:
        call_s, _ = _timed_call(program, default, example, platform)
    taming_s = max(LEAST_TAMING_S, TAMING * oracle_limit_s)
    known = replace(example, results=results)
    sets = tame_inputs(program, default, seed, taming_s, known, call_s)
    return InputSets(
        sets=sets,
        compile_s=compile_s,
        call_s=call_s,
        is_sample=is_long and sets[0].values is example.values,
    )


def _timed_call(
    program: Program, function: Callable[..., Any], inputs: Inputs, platform: str
) -> tuple[float, tuple[NDArray[Any], ...]]:
    """What a blocking call takes on values that are on the device, and what it gives."""
    with jax.enable_x64(True), jax.default_device(device_of(platform)):
        values = to_give_away(program, [jax.device_put(v) for v in inputs.values])
    for x in values:
        x.block_until_ready()
    start_s = time.perf_counter()
    results = called_once(program, function, values)
    for x in results:
        x.block_until_ready()
    took_s = time.perf_counter() - start_s
    return took_s, tuple(np.asarray(x) for x in results)

"""XLA's own program in a process that runs nothing else, called in a loop as a user would.

    echo '{"kernel": TEXT}' | python -m benchmarks.fresh_default
    echo '{"program": "examples/mlp.py:model"}' | python -m benchmarks.fresh_default

It prints one list of samples for each form of the default, in seconds a call: for a kernel with
constants, these as operands and in its text.  JAX, XLA and the allocator have their own settings.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from benchmarks.command import command
from hlotune.deploy.flat_calls import called
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.bench import MOST_BAKED_BYTES
from hlotune.measure.timing.xla import baked_text, compiled, default_text, on_device
from hlotune.measure.verification.inputs import draw

WARM_CALLS = 3
FEWEST_SAMPLES = 15
SECONDS = 0.3
"""Seconds for each form, once it has the fewest samples."""

Call = Callable[[], Sequence[jax.Array]]


def main() -> None:
    asked = json.load(sys.stdin)
    calls = program_calls(asked["program"]) if "program" in asked else kernel_calls(asked["kernel"])
    print(json.dumps([sampled(call) for call in calls]))


def kernel_calls(text: str) -> Iterator[Call]:
    """A kernel with its constants as operands and, where it has some, in its text."""
    kernel = Kernel(text)
    graph = graph_of(kernel)
    values = draw(graph, "normal", np.random.default_rng(0))
    arrays = [on_device(v) for v in values]
    own = compiled(default_text(kernel))
    yield lambda: own(arrays)
    constant = [a in graph.constants for a in graph.arguments]
    baked_bytes = sum(v.nbytes for v, c in zip(values, constant, strict=True) if c)
    if not 0 < baked_bytes <= MOST_BAKED_BYTES:
        return
    baked = compiled(baked_text(kernel, graph, values))
    others = [a for a, c in zip(arrays, constant, strict=True) if not c]
    yield lambda: baked(others)


def program_calls(source: str) -> Iterator[Call]:
    program = load(source)
    default = jitted(program)
    values = [jax.device_put(v) for v in example_inputs(program).values]
    yield lambda: called(program, default, values)


def sampled(call: Call) -> list[float]:
    """Seconds of blocking calls, one right after the other."""
    for _ in range(WARM_CALLS):
        seconds_of(call)
    samples: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(samples) < FEWEST_SAMPLES or time.perf_counter() < end:
        samples.append(seconds_of(call))
    return samples


def seconds_of(call: Call) -> float:
    start = time.perf_counter()
    for result in call():
        result.block_until_ready()
    return time.perf_counter() - start


if __name__ == "__main__":
    command(main)

"""Computes built by hand against XLA, without XLA around them: elementwise, reductions, rows.

    python -m benchmarks.kernels.by_hand --seconds 60

Each case is called in turns with what XLA makes of the same function: the first candidate, and the
best of a short random search that begins there.  Results are held against XLA's before any time
is taken.  Computes are built by hand (`row_kernels.py`); the limit is that of
`schedules/patterns/row_limit.py`.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.command import command
from benchmarks.results import Table, conditions, geometric_mean, publish
from benchmarks.row_kernels import (
    argmax,
    gelu,
    heads,
    layer_norm,
    log_softmax,
    over_all,
    over_columns,
    over_rows,
    residual_relu,
    rms_norm,
    softmax,
    transpose,
)
from hlotune.codegen.build import build
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import host_properties
from hlotune.measure.verification.buffers import guarded, rounded
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.row_limit import least_seconds
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

TOLERANCE = 2e-4
"""The largest difference allowed, relative to the largest result."""
SEARCHED_CALLS = 5
Call = Callable[[], object]


def _layer_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    apart = x - x.mean(-1, keepdims=True)
    return apart * jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * g + b


def _rms_norm(x: jax.Array, g: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def _argmax(x: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
    at = jnp.argmax(x, 1).astype(jnp.int32)
    return jnp.take_along_axis(x, at[:, None], 1)[:, 0], at


Case = tuple[Compute, Callable[..., Any]]
ALONE: dict[str, Case] = {
    "gelu(x + bias) 512x3072": (
        gelu(512, 3072), lambda x, b: jax.nn.gelu(x + b, approximate=False)),
    "relu(x + y) 56x56x256": (residual_relu(56 * 56 * 256), lambda x, y: jax.nn.relu(x + y)),
    "transpose 1024x1024": (transpose(1024, 1024), lambda x: x.T),
    "12x128x64 to 128x12x64": (heads(12, 128, 64), lambda x: x.transpose(1, 0, 2)),
    "sum of rows 4096x4096": (over_columns(4096, 4096), lambda x: x.sum(1)),
    "sum of columns 4096x4096": (over_rows(4096, 4096), lambda x: x.sum(0)),
    "sum of all 4096x4096": (over_all(1 << 24), lambda x: x.sum()),
    "argmax 512x32000": (argmax(512, 32000), _argmax),
}  # fmt: skip
OF_ROWS: dict[str, tuple[Callable[[int, int], Compute], Callable[..., Any]]] = {
    "softmax": (softmax, jax.nn.softmax), "log softmax": (log_softmax, jax.nn.log_softmax),
    "layer norm": (layer_norm, _layer_norm), "RMS norm": (rms_norm, _rms_norm),
}  # fmt: skip
CASES: dict[str, Case] = ALONE | {
    f"{name} {rows}x{columns}": (compute(rows, columns), function)
    for rows, columns in ((512, 1024), (8192, 768), (64, 32000))
    for name, (compute, function) in OF_ROWS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds of a call, the median of the turns."""

    case: str
    xla_s: float
    first_s: float
    best_s: float
    limit_s: float
    first: str
    best: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES], metavar="CASE")
    parser.add_argument("--seconds", type=float, default=60.0, help="of timing, for all cases")
    parser.add_argument("--search", type=int, default=12, help="candidates of the short search")
    options = parser.parse_args()
    target, share = host_target(), options.seconds / len(options.cases)
    with alone():
        properties = host_properties(target)
        before = conditions(target, properties)
        lines = []
        for name in options.cases:
            compute, function = CASES[name]
            limit_s = least_seconds(compute, target, properties)
            lines.append(measured(name, compute, function, target, limit_s, share, options.search))
    publish(table(lines), before, [asdict(line) for line in lines])


def measured(
    name: str, compute: Compute, function: Callable[..., Any], target: CpuTarget, limit_s: float,
    seconds: float, search: int,
) -> Line:  # fmt: skip
    values = arguments_of(compute)
    given = [jnp.asarray(x) for x in values]
    compiled = jax.jit(function)
    wanted = [np.asarray(x) for x in jax.tree.leaves(compiled(*given))]
    schedules = candidates(compute, target, search)
    calls = {k: called(compute, s, target, values, wanted) for k, s in schedules.items()}
    first = next(iter(calls))
    best = min(calls, key=lambda k: min(timed(calls[k]) for _ in range(SEARCHED_CALLS)))
    turns: dict[str, Call] = {"xla": lambda: _waited(compiled(*given))}
    turns |= {"first": calls[first], "best": calls[best]}
    times = in_turns(turns, seconds)
    return Line(
        case=name, xla_s=times["xla"], first_s=times["first"], best_s=times["best"],
        limit_s=limit_s, first=schedules[first].to_json(), best=schedules[best].to_json(),
    )  # fmt: skip


def _waited(found: Any) -> object:
    return [x.block_until_ready() for x in jax.tree.leaves(found)]


def arguments_of(compute: Compute) -> list[NDArray[Any]]:
    """Normal numbers; of integers the numbers from 0 on."""
    rng, found = np.random.default_rng(0), list[NDArray[Any]]()
    for t in compute.arguments:
        if t.dtype == "i32":
            found.append(np.arange(t.elements, dtype=np.int32).reshape(t.shape))
        else:
            found.append(rng.standard_normal(t.shape, dtype=np.float32))
    return found


def candidates(compute: Compute, target: CpuTarget, count: int) -> dict[int, Schedule]:
    """The first candidates of all algorithms, then neighbours of the foremost one."""
    space, rng = space_of(compute, target), np.random.default_rng(0)
    firsts = space.firsts()
    near = np.tile(firsts[0], (count, 1))
    for _ in range(3):
        near = space.neighbours(near, rng)
    return {k: space.schedule(c) for k, c in enumerate((*firsts, *near))}


def called(
    compute: Compute, schedule: Schedule, target: CpuTarget, values: Sequence[NDArray[Any]],
    wanted: Sequence[NDArray[Any]],
) -> Call:  # fmt: skip
    """A call whose results were right.  Raises WrongResult where they were not."""
    loaded, host = load(build(compute, schedule, target)), crew_host()
    given = [guarded(x.nbytes, "before") for x in values]
    for buffer, x in zip(given, values, strict=True):
        buffer.data[...] = x.reshape(-1).view(np.uint8)
    results = [guarded(t.bytes, "before") for t in compute.results]
    scratch = guarded(rounded(loaded.built.scratch_bytes), "before")
    into, out = [b.address for b in given], [b.address for b in results]
    held = given, results  # as long as the call: addresses alone keep nothing

    def call() -> None:
        assert held
        if status := loaded.call(KERNEL, into, out, scratch.address, host):
            raise WrongResult(f"expected status 0, got {status}; the kernel gave up")

    call()
    for t, buffer, right in zip(compute.results, results, wanted, strict=True):
        got = buffer.array(t.shape, right.dtype)
        most = float(np.abs(right).max())
        if not np.allclose(got, right, rtol=TOLERANCE, atol=TOLERANCE * most):
            raise WrongResult(f"expected what XLA computes of {t.name}, got something else")
    return call


def timed(call: Call) -> float:
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, found.values())) < 5:
        for name, call in calls.items():
            found[name].append(timed(call))
    return {name: median(times) for name, times in found.items()}


def table(lines: Sequence[Line]) -> Table:
    means = [geometric_mean([x.xla_s / s for x, s in pairs]) for pairs in (
        [(x, x.first_s) for x in lines], [(x, x.best_s) for x in lines],
    )]  # fmt: skip
    return Table(
        name="kernels_by_hand",
        columns=["case", ">XLA us", ">first us", ">ratio", ">searched us", ">ratio ",
                 ">limit us", ">first of limit"],
        rows=[cells(x) for x in lines],
        notes=[
            "medians of calls in turns, all of them warm; ratios are XLA's time over ours",
            f"geometric means of the ratios: {means[0]:.2f} and {means[1]:.2f}",
            "the limit counts bytes and operations that no schedule can do without, at peak rates",
        ],
    )  # fmt: skip


def cells(x: Line) -> tuple[str, ...]:
    us = [f"{s * 1e6:.1f}" for s in (x.xla_s, x.first_s, x.best_s, x.limit_s)]
    return (
        x.case, us[0], us[1], f"{x.xla_s / x.first_s:.2f}", us[2], f"{x.xla_s / x.best_s:.2f}",
        us[3], f"{x.limit_s / x.first_s:.0%}",
    )  # fmt: skip


if __name__ == "__main__":
    command(main)

"""Functions of f32: the largest errors of our code and of XLA's, and elements a nanosecond.

    python -m benchmarks.functions --numbers 1000000

Numbers are spread evenly over all bit patterns.  References are NumPy's in f64, SciPy's of error
functions.  XLA takes subnormals for zeros: its errors are those of normal arguments and results.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import jax
import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks.command import command
from benchmarks.results import Table, conditions, publish
from hlotune.codegen.build import build
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import host_properties
from hlotune.measure.verification.buffers import guarded, rounded
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.targets.cpu import CpuTarget

Array = NDArray[Any]
ELEMENTS = 1 << 20
"""The size of an array that is passed over at once."""
CALLS = 60
Reference = tuple[Callable[[Array], Array], Callable[[jax.Array], jax.Array]]
FUNCTIONS: dict[str, Reference] = {
    "exponential": (np.exp, jax.numpy.exp),
    "exponential_minus_one": (np.expm1, jax.numpy.expm1),
    "log": (np.log, jax.numpy.log),
    "log_plus_one": (np.log1p, jax.numpy.log1p),
    "tanh": (np.tanh, jax.numpy.tanh),
    "logistic": (
        lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))), jax.lax.logistic,
    ),
    "sine": (np.sin, jax.numpy.sin),
    "cosine": (np.cos, jax.numpy.cos),
    "tan": (np.tan, jax.numpy.tan),
    "erf": (scipy.special.erf, jax.lax.erf),
    "erfc": (scipy.special.erfc, jax.lax.erfc),
    "rsqrt": (lambda x: 1 / np.sqrt(x), jax.lax.rsqrt),
    "cbrt": (np.cbrt, jax.numpy.cbrt),
    "sqrt": (np.sqrt, jax.numpy.sqrt),
}  # fmt: skip
"""The functions of NumPy, which are called in f64, and of JAX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Errors in units of the last place; seconds of a call over `ELEMENTS`."""

    function: str
    ours_ulps: float
    xla_ulps: float
    ours_s: float
    xla_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", type=float, default=1e6, help="at which errors are taken")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=[*FUNCTIONS])
    options = parser.parse_args()
    target = host_target()
    with alone():
        before = conditions(target, host_properties(target))
        lines = [measured(name, target, int(options.numbers)) for name in options.functions]
    publish(table(lines, int(options.numbers)), before, [asdict(x) for x in lines])


def measured(name: str, target: CpuTarget, numbers: int) -> Line:
    reference, function = FUNCTIONS[name]
    ours, xla = Kernel(name, target), jax.jit(function)
    worst = [0.0, 0.0]
    patterns = np.linspace(0, 2**32 - 1, numbers).astype(np.uint32)
    for part in np.array_split(patterns, -(-numbers // ELEMENTS)):
        x = np.resize(part, ELEMENTS).view(np.float32)
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
        worst[0] = max(worst[0], float(ulps(ours(x), exact).max()))
        found = np.asarray(xla(x))
        worst[1] = max(worst[1], float(ulps(found, exact)[normal(x, exact)].max()))
    x = np.random.default_rng(0).uniform(0.1, 4.0, ELEMENTS).astype(np.float32)
    ours(x)
    given = jax.device_put(x)
    calls = {"ours": ours.again, "xla": lambda: xla(given).block_until_ready()}
    times = in_turns(calls)
    return Line(
        function=name, ours_ulps=worst[0], xla_ulps=worst[1], ours_s=times["ours"],
        xla_s=times["xla"],
    )  # fmt: skip


class Kernel:
    """A function over an array, by the first candidate of its space."""

    def __init__(self, name: str, target: CpuTarget) -> None:
        index = (Affine.axis("i"),)
        value = Apply(name, (Load("a0", index, "f32"),), "f32")
        stage = Stage("out", (Axis("i", ELEMENTS),), (), (Store("y0", index),), (value,))
        argument = Tensor("a0", (ELEMENTS,), "f32", "argument")
        result = Tensor("y0", (ELEMENTS,), "f32", "result")
        compute = Compute((argument, result), (stage,))
        space = space_of(compute, target)
        self.loaded = load(build(compute, space.schedule(space.firsts()[0]), target))
        self.argument, self.result = (guarded(4 * ELEMENTS, "before") for _ in range(2))
        self.scratch = guarded(rounded(self.loaded.built.scratch_bytes), "before")
        self.host = crew_host()

    def __call__(self, x: Array) -> Array:
        self.argument.data[...] = x.view(np.uint8)
        self.again()
        found: Array = self.result.array((ELEMENTS,), np.dtype(np.float32)).copy()
        return found

    def again(self) -> object:
        into, out = [self.argument.address], [self.result.address]
        return self.loaded.call(KERNEL, into, out, self.scratch.address, self.host)


def ulps(found: Array, exact: Array) -> Array:
    """Errors in units of the last place; infinite where one is no number, or infinite, alone."""
    with np.errstate(all="ignore"):
        right = exact.astype(np.float32)
        size = np.minimum(np.abs(right.astype(np.float64)), float(np.finfo(np.float32).max))
        place = np.ldexp(1.0, np.maximum(np.frexp(size)[1], -125) - 24)
        apart = np.abs(found.astype(np.float64) - exact) / place
        same = (np.isnan(found) & np.isnan(right)) | ((found == right) & np.isinf(right))
    found_ulps: Array = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return found_ulps


def normal(x: Array, exact: Array) -> Array:
    """Where neither the argument nor the result is subnormal."""
    least = float(np.finfo(np.float32).tiny)
    small = (np.abs(exact) < 2 * least) & (exact != 0)
    inside: Array = ~small & ((np.abs(x) >= least) | (x == 0))
    return inside


def in_turns(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALLS):
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in found.items()}


def table(lines: Sequence[Line], numbers: int) -> Table:
    return Table(
        name="functions",
        columns=["function", ">ours ulps", ">XLA ulps", ">ours elements/ns", ">XLA elements/ns"],
        rows=[
            (
                x.function, f"{x.ours_ulps:.2f}", f"{x.xla_ulps:.3g}",
                f"{ELEMENTS / x.ours_s * 1e-9:.2f}", f"{ELEMENTS / x.xla_s * 1e-9:.2f}",
            )
            for x in lines
        ],
        notes=[
            f"largest errors at {numbers} numbers of all sizes; XLA's without subnormal arguments "
            "and results, which it takes for zeros",
            "elements of one call over 2^20 numbers between 0.1 and 4, on all threads, in turns; "
            "ours is called without XLA",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    command(main)

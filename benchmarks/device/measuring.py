"""The child that owns the device: it verifies and times."""

import importlib.metadata
import math
import time
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.device.cases import from_json
from benchmarks.device.child import serve
from benchmarks.device.compiling import loaded
from benchmarks.device.programs import LIMITS, WORST, errors, inputs, program, reference
from hlotune.codegen.pallas.build import build
from hlotune.codegen.pallas.lowering import lowered
from hlotune.measure.timing.device_times import times
from hlotune.schedules.patterns.gpu import GpuKernel

L2_BYTES = 60e6
"""The L2 of the largest GPU that is known; sets of operands in turn exceed it three times."""
MOST_SETS = 8
TRIAL_S = 0.01, 0.02
"""The times of a trial's burst: for warming, and for the calls that are timed."""
ROUND_S = 0.04, 0.04
COPIED_BYTES = 2**31
PEAK_EXTENT = 8192
EXHAUSTIVE = {"xla_gpu_exhaustive_tiling_search": True}


class Measuring:
    """One kernel at a time, with its operands and what is right of them on the device."""

    def __init__(self) -> None:
        self._kernel: GpuKernel | None = None
        self._sets: list[tuple[jax.Array, ...]] = []
        self._wanted: jax.Array | None = None
        self._held: dict[str, Any] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question["do"]:
            case "machine":
                return machine(question["peaks"])
            case "kernel":
                return self._prepare(from_json(question["kernel"]))
            case "program":
                return self._program(question["how"])
            case "candidate":
                return self._candidate(question)
            case "round":
                return self._round(question["how"])
            case other:
                raise ValueError(f"the measuring child was asked to {other!r}")

    def _prepare(self, kernel: GpuKernel) -> dict[str, Any]:
        self._sets, self._wanted, self._held, self._kernel = [], None, {}, kernel
        count = max(1, min(MOST_SETS, math.ceil(3 * L2_BYTES / kernel.bytes)))
        self._sets = [inputs(kernel, seed) for seed in range(count)]
        self._wanted = jax.jit(reference(kernel))(*self._sets[0])
        self._wanted.block_until_ready()
        return {"sets": count}

    def _program(self, how: str) -> dict[str, Any]:
        """The kernel as XLA compiles it, by default or with all its tilings tried."""
        assert self._kernel is not None
        start = time.perf_counter()
        low = jax.jit(program(self._kernel)).lower(*self._sets[0])
        options: Any = EXHAUSTIVE if how == "xla_exhaustive" else None
        self._held[how] = low.compile(compiler_options=options)
        return self._measured(self._held[how], time.perf_counter() - start)

    def _candidate(self, question: dict[str, Any]) -> dict[str, Any]:
        """A schedule; `hold` says under which name it stays for rounds, or is missing."""
        assert self._kernel is not None
        start = time.perf_counter()
        note = {}
        try:
            function = loaded(question["file"])
        except Exception as error:  # an executable that cannot be loaded is compiled here
            note = {"not_loaded": " ".join(str(error).split())[:300]}
            knobs, interpret = question["knobs"], question["interpret"]
            built = build(self._kernel, question["sketch"], knobs, interpret)
            function = lowered(built, self._sets[0]).compile()
        if "hold" in question:
            self._held[question["hold"]] = function
            return note
        return self._measured(function, time.perf_counter() - start) | note

    def _measured(self, function: Any, ready_s: float) -> dict[str, Any]:
        before = self._errors(function)
        if not before["right"]:
            return {**before, "ready_s": ready_s}
        measured = times(function, self._sets, *TRIAL_S)
        after = self._errors(function)
        return {**after, "seconds": measured.seconds, **asdict(measured), "ready_s": ready_s}

    def _round(self, how: str) -> dict[str, Any]:
        measured = times(self._held[how], self._sets, *ROUND_S)
        return {"seconds": measured.seconds, "queue_s": measured.queue_s}

    def _errors(self, function: Any) -> dict[str, Any]:
        """How far a call is from the reference, and whether that is near enough."""
        assert self._kernel is not None
        assert self._wanted is not None
        error, worst = (float(e) for e in errors(function(*self._sets[0]), self._wanted))
        right = error <= LIMITS[self._kernel.element] and worst <= WORST
        return {"relative_error": error, "worst_error": worst, "right": right}


def machine(peaks: bool) -> dict[str, Any]:
    """The device, the versions, and, where asked, what it was seen to do."""
    device = jax.devices()[0]
    facts: dict[str, Any] = {
        "device": device.device_kind,
        "platform": device.platform,
        "client": " ".join(device.client.platform_version.split()),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
    }
    return {**facts, **measured_peaks()} if peaks else facts


def measured_peaks() -> dict[str, float]:
    """Bytes a second of a copy, read and written, and operations a second of a product."""
    x = jnp.ones((COPIED_BYTES // 4,), jnp.float32)
    copied = times(jax.jit(lambda a: a + 1).lower(x).compile(), [(x,)], *ROUND_S)
    shape = (PEAK_EXTENT, PEAK_EXTENT)
    a, b = (jax.random.normal(jax.random.key(n), shape, jnp.bfloat16) for n in (0, 1))
    multiplied = times(jax.jit(jnp.matmul).lower(a, b).compile(), [(a, b)], *ROUND_S)
    return {
        "copy_bytes_per_s": 2 * COPIED_BYTES / copied.seconds,
        "bf16_flops_per_s": 2.0 * PEAK_EXTENT**3 / multiplied.seconds,
    }


if __name__ == "__main__":
    serve(Measuring().answer)

"""The child that times PyTorch on the same kernels."""

import math
import time
from collections.abc import Callable
from typing import Any

from benchmarks.device.cases import from_json
from benchmarks.device.child import serve
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)

L2_BYTES = 60e6
MOST_SETS = 8
LAUNCHES = (5, 400)
ROUND_S = 0.04, 0.04
"""The times of a burst: for warming, and for the calls that are timed."""
EPSILON = 1e-5


class Peer:
    """One kernel at a time: `torch_eager`, or `torch_compiled` by `torch.compile`."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._kernel: GpuKernel | None = None
        self._sets: list[tuple[Any, ...]] = []
        self._graphs: dict[str, tuple[Any, int]] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question["do"]:
            case "machine":
                return {"torch": self._torch.__version__, "cuda": self._torch.version.cuda}
            case "kernel":
                return self._prepare(from_json(question["kernel"]))
            case "program":
                with self._torch.no_grad():
                    return self._program(question["how"])
            case "round":
                return self._round(question["how"])
            case other:
                raise ValueError(f"the peer was asked to {other!r}")

    def _prepare(self, kernel: GpuKernel) -> dict[str, Any]:
        torch = self._torch
        self._kernel, self._sets, self._graphs = kernel, [], {}
        torch.cuda.empty_cache()
        torch.backends.cuda.matmul.allow_tf32 = kernel.element == "tf32"
        torch.backends.cudnn.allow_tf32 = kernel.element == "tf32"
        torch.backends.cudnn.benchmark = True
        count = max(1, min(MOST_SETS, math.ceil(3 * L2_BYTES / kernel.bytes)))
        self._sets = [_operands(torch, kernel) for _ in range(count)]
        return {"sets": count}

    def _program(self, how: str) -> dict[str, Any]:
        """Captures a burst of calls into one graph, and times it."""
        torch = self._torch
        assert self._kernel is not None
        function = _function(torch, self._kernel)
        start = time.perf_counter()
        if how == "torch_compiled":
            # The kernels of `max-autotune`; its own graphs would copy each set of operands first.
            torch._dynamo.reset()
            function = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
        function(*self._sets[0])
        torch.cuda.synchronize()
        ready_s = time.perf_counter() - start
        once = _eager_s(torch, function, self._sets, 3)
        launches = max(LAUNCHES[0], min(LAUNCHES[1], round(ROUND_S[1] / once)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for n in range(launches):
                function(*self._sets[n % len(self._sets)])
        self._graphs[how] = graph, launches
        return {**self._round(how), "right": True, "ready_s": ready_s}

    def _round(self, how: str) -> dict[str, Any]:
        """One burst: the graph twice, the second time counted, and as often traced."""
        torch = self._torch
        graph, launches = self._graphs[how]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        queue_s = begin.elapsed_time(end) / 1e3 / launches
        kernel_s = _kernel_s(torch, graph, launches)
        return {"seconds": queue_s if kernel_s is None else kernel_s, "queue_s": queue_s}


def _operands(torch: Any, kernel: GpuKernel) -> tuple[Any, ...]:
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(kernel.element, torch.float32)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    match kernel:
        case GpuProduct():
            batch = (kernel.batch,) if kernel.batch > 1 else ()
            bias = () if kernel.epilogue == "none" else (random(kernel.n),)
            return random(*batch, kernel.m, kernel.k), random(*batch, kernel.k, kernel.n), *bias
        case GpuRows():
            parameters = 2 if kernel.operation == "layer_norm" else 0
            return random(kernel.rows, kernel.columns), *(
                random(kernel.columns) for _ in range(parameters)
            )
        case GpuAttention():
            a = kernel
            keys = [random(1, a.key_heads, a.keys, a.depth) for _ in range(2)]
            return random(1, a.heads, a.queries, a.depth), *keys
        case GpuConvolution():
            c = kernel
            last = torch.channels_last
            images = random(c.batch, c.channels, c.size, c.size).to(memory_format=last)
            weights = random(c.features, c.channels, c.window, c.window).to(memory_format=last)
            bias = () if c.epilogue == "none" else (random(c.features),)
            return images, weights, *bias


def _function(torch: Any, kernel: GpuKernel) -> Callable[..., Any]:
    functional = torch.nn.functional
    match kernel:
        case GpuProduct():
            activate = _activation(functional, kernel.epilogue)
            if kernel.epilogue == "none":
                return lambda a, b: torch.matmul(a, b)
            if kernel.batch > 1:
                return lambda a, b, bias: activate(torch.matmul(a, b) + bias)
            return lambda a, b, bias: activate(torch.addmm(bias, a, b))
        case GpuRows(operation="softmax"):
            return lambda x: torch.softmax(x, dim=-1)
        case GpuRows():
            return lambda x, s, o: functional.layer_norm(x, (kernel.columns,), s, o, EPSILON)
        case GpuAttention():
            return lambda q, k, v: functional.scaled_dot_product_attention(
                q, k, v, is_causal=kernel.causal, enable_gqa=kernel.group > 1
            )
        case GpuConvolution():
            activate = _activation(functional, kernel.epilogue)
            return lambda x, w, bias=None: activate(
                functional.conv2d(x, w, bias, stride=kernel.stride, padding=kernel.padding)
            )


def _activation(functional: Any, epilogue: str) -> Callable[[Any], Any]:
    named: dict[str, Callable[[Any], Any]] = {
        "bias_relu": functional.relu,
        "bias_gelu": functional.gelu,
    }
    return named.get(epilogue, lambda values: values)


def _eager_s(
    torch: Any, function: Callable[..., Any], sets: list[tuple[Any, ...]], launches: int
) -> float:
    for warm in (True, False):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for n in range(launches if not warm else 1):
            function(*sets[n % len(sets)])
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / launches


def _kernel_s(torch: Any, graph: Any, launches: int) -> float | None:
    """Seconds of the kernels of one call, the first of two replays left out.

    None where the tracer does not answer.
    """
    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as traced:
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    kernels = [e.time_range for e in traced.events() if e.device_type == device]
    kernels.sort(key=lambda r: float(r.start))
    counted = kernels[len(kernels) // 2 :]
    if not counted or len(kernels) % (2 * launches):
        return None
    total: float = sum(r.end - r.start for r in counted)
    return total / 1e6 / launches


if __name__ == "__main__":
    serve(Peer().answer)

"""The kernels whose trials cost models learn from: convolutions and products of many shapes, f32.

Between 1 MFLOP and 5 GFLOP each, half of them above 20 MFLOP.  Their extents are their own: no two
that the database calls a family share more than half of them, and none is a layer of a network or a
case of a benchmark that models are judged by.  `KERNELS` has them by name; each is a factory:

    tune run benchmarks/dataset_kernels.py:conv2d_0 --trials 100
"""

from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.fused import Fused
from benchmarks.operations import Array, Convolution, Product, Shape
from hlotune.deploy.freeze import freeze

FILE = "benchmarks/dataset_kernels.py"

Factory = Callable[[], tuple[Callable[..., jax.Array], tuple[Array, ...]]]


def _convolution(size: Shape, inputs: int, outputs: int, window: int, **more: Any) -> Convolution:
    """Padded so that without a stride the image keeps its size."""
    padding = more.get("dilation", 1) * (window - 1) // 2
    return Convolution(
        size=size, inputs=inputs, outputs=outputs, window=window, padding=padding, **more
    )


GROUPS: dict[str, tuple[Fused, ...]] = {
    "gemm": (
        Fused(Product(m=384, k=640, n=448)),
        Fused(Product(m=47, k=83, n=139)),
        Fused(Product(m=200, k=1000, n=72)),
        Fused(Product(m=1152, k=1408, n=1344)),
    ),
    "gemm_thin": (
        Fused(Product(m=1, k=2304, n=1792)),
        Fused(Product(m=3, k=1536, n=2560)),
        Fused(Product(m=6144, k=240, n=5)),
    ),
    "gemm_transposed": (
        Fused(Product(m=260, k=880, n=136, swapped="left")),
        Fused(Product(m=56, k=2816, n=368, swapped="right")),
        Fused(Product(m=624, k=208, n=528, swapped="right")),
    ),
    "gemm_batched": (
        Fused(Product(m=60, k=112, n=152, batch=(8,))),
        Fused(Product(m=80, k=192, n=64, batch=(4, 6))),
        Fused(Product(m=164, k=52, n=188, batch=(10,), swapped="right")),
        Fused(Product(m=20, k=256, n=33, batch=(16,))),
    ),
    "gemm_constant": (
        Fused(Product(m=72, k=416, n=576), "bias+relu", constant=True),
        Fused(Product(m=330, k=528, n=280), "bias+gelu", constant=True),
        Fused(Product(m=1, k=1920, n=1184), "bias+relu", constant=True),
        Fused(Product(m=16, k=1344, n=800), "bias+gelu", constant=True),
    ),
    "conv1d": (
        Fused(_convolution((75,), 208, 304, 7)),
        Fused(_convolution((500,), 128, 112, 3, stride=2)),
        Fused(_convolution((1024,), 24, 40, 9)),
    ),
    "conv1d_first": (
        Fused(_convolution((420,), 56, 68, 3, channels="first")),
        Fused(_convolution((160,), 144, 184, 5, stride=2, channels="first")),
    ),
    "conv2d": (
        Fused(_convolution((30, 40), 96, 80, 3)),
        Fused(_convolution((12, 10), 384, 320, 3)),
        Fused(_convolution((64, 48), 24, 36, 3)),
        Fused(_convolution((36, 28), 40, 56, 5)),
        Fused(_convolution((72, 88), 128, 160, 3)),
    ),
    "conv2d_batch": (Fused(_convolution((16, 18), 52, 60, 3, batch=4)),),
    "conv2d_1x1": (
        Fused(_convolution((24, 32), 176, 112, 1)),
        Fused(_convolution((15, 17), 448, 224, 1)),
        Fused(_convolution((8, 10), 960, 352, 1)),
    ),
    "conv2d_strided": (
        Fused(_convolution((52, 44), 72, 152, 3, stride=2)),
        Fused(_convolution((38, 54), 120, 200, 1, stride=2)),
        Fused(_convolution((120, 92), 4, 44, 7, stride=2)),
    ),
    "conv2d_constant": (
        Fused(_convolution((34, 22), 88, 120, 3), "scale+bias+relu", constant=True),
        Fused(_convolution((18, 14), 256, 184, 3), "scale+bias+relu", constant=True),
        Fused(_convolution((46, 42), 136, 72, 1), "scale+bias+relu", constant=True),
        Fused(_convolution((60, 76), 68, 100, 3, stride=2), "scale+bias+relu", constant=True),
        Fused(_convolution((80, 96), 32, 48, 3), "scale+bias+relu", constant=True),
    ),
    "conv2d_residual": (
        Fused(_convolution((26, 36), 104, 104, 3), "bias+residual+relu", constant=True),
        Fused(_convolution((13, 15), 232, 232, 3), "bias+residual+relu", constant=True),
        Fused(_convolution((44, 50), 72, 72, 3), "bias+residual+relu"),
    ),
    "conv2d_first": (
        Fused(_convolution((32, 38), 80, 72, 3, channels="first")),
        Fused(_convolution((16, 20), 208, 248, 1, channels="first")),
        Fused(_convolution((68, 52), 28, 60, 3, stride=2, channels="first")),
    ),
    "conv2d_first_constant": (
        Fused(_convolution((40, 24), 64, 88, 3, channels="first"), "bias+relu", constant=True),
        Fused(_convolution((19, 29), 120, 144, 3, channels="first"), "bias+relu", constant=True),
        Fused(_convolution((11, 9), 288, 272, 1, channels="first"), "bias+relu", constant=True),
    ),
    "conv3d": (
        Fused(_convolution((8, 20, 18), 48, 64, 3)),
        Fused(_convolution((6, 30, 26), 36, 40, 3, stride=2)),
        Fused(_convolution((12, 16, 14), 96, 88, 1)),
    ),
    "conv3d_first": (Fused(_convolution((10, 15, 13), 44, 56, 3, channels="first")),),
    "dilated": (
        Fused(_convolution((33, 29), 64, 88, 3, dilation=2)),
        Fused(_convolution((14, 22), 216, 124, 3, dilation=3)),
    ),
    "grouped": (
        Fused(_convolution((28, 35), 48, 104, 3, groups=4)),
        Fused(_convolution((23, 25), 228, 342, 3, groups=6)),
    ),
    "depthwise": (
        Fused(_convolution((56, 70), 68, 68, 3, groups=68)),
        Fused(_convolution((45, 39), 240, 240, 5, groups=240)),
        Fused(_convolution((108, 164), 140, 140, 3, stride=2, groups=140)),
    ),
    "depthwise_first": (
        Fused(_convolution((78, 62), 84, 84, 3, groups=84, channels="first")),
        Fused(_convolution((37, 43), 116, 116, 5, groups=116, channels="first")),
    ),
    "transposed": (
        Fused(_convolution((11, 13), 208, 148, 4, stride=2, transposed=True)),
        Fused(_convolution((6, 7), 336, 168, 4, stride=2, transposed=True)),
    ),
    "transposed_first": (
        Fused(_convolution((10, 12), 152, 100, 4, stride=2, transposed=True, channels="first")),
    ),
    "image_gradient": (
        Fused(_convolution((32, 44), 60, 76, 3, direction="input_gradient")),
        Fused(_convolution((18, 26), 108, 180, 3, stride=2, direction="input_gradient")),
        Fused(_convolution((22, 16), 240, 192, 1, direction="input_gradient")),
    ),
    "weights_gradient": (
        Fused(_convolution((30, 34), 56, 72, 3, direction="weight_gradient")),
        Fused(_convolution((16, 24), 140, 116, 3, direction="weight_gradient")),
        Fused(_convolution((40, 52), 36, 48, 3, stride=2, direction="weight_gradient")),
    ),
    "gradient_first": (
        Fused(_convolution((28, 30), 64, 96, 3, channels="first", direction="input_gradient")),
        Fused(_convolution((26, 22), 80, 112, 3, channels="first", direction="weight_gradient")),
    ),
}
"""By what they are, from the most telling to the least."""

KERNELS: dict[str, Fused] = {
    name: case
    for name, case in chain.from_iterable(
        zip_longest(
            *(
                [(f"{group}_{n}", c) for n, c in enumerate(cases)]
                for group, cases in GROUPS.items()
            ),
            fillvalue=("", None),
        )
    )
    if case is not None
}
"""In the order in which they are measured: the first of each group, then the second of each."""


def source(name: str) -> str:
    """What `hlotune.load` takes, in the root of the checkout."""
    return f"{FILE}:{name}"


def factory(name: str) -> Factory:
    """Of a kernel's program.  Raises KeyError for an unknown name."""
    kernel = KERNELS[name]

    def make() -> tuple[Callable[..., jax.Array], tuple[Array, ...]]:
        values = kernel.inputs()
        if not kernel.constant:
            return kernel.__call__, values
        bound = map(jnp.asarray, values[: kernel.parameters])
        return freeze(kernel.__call__, *bound), values[kernel.parameters :]

    return make


def __getattr__(name: str) -> Factory:
    """The factories, by the names that a program's source has."""
    try:
        return factory(name)
    except KeyError:
        groups = ", ".join(GROUPS)
        raise AttributeError(
            f"expected one of {groups}, and a number behind it, got {name!r}"
        ) from None

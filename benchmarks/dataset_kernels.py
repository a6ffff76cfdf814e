"""The kernels whose trials cost models learn from: contractions and rows of many shapes, f32.

Convolutions and products have between 1 MFLOP and 5 GFLOP each, half of them above 20 MFLOP.  Their
extents are their own: no two that the database calls a family share more than half of them, and
none is a layer of a network or a case of a benchmark that models are judged by.  `ROW_GROUPS` has
what is no contraction, of 100 kB to 30 MB.  `KERNELS` has all by name; each is a factory:

    tune run benchmarks/dataset_kernels.py:conv2d_0 --trials 100
"""

from collections.abc import Callable, Mapping
from itertools import chain, zip_longest
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from benchmarks.fused import Fused
from benchmarks.operations import Array, Convolution, Product, Shape
from benchmarks.row_functions import Rows
from hlotune.deploy.freeze import freeze

FILE = "benchmarks/dataset_kernels.py"

Case = TypeVar("Case", Fused, Rows)
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


def _rows(function: str, *shapes: Shape) -> Rows:
    return Rows(function, shapes)


def _normed(function: str, *shapes: Shape) -> tuple[Rows, ...]:
    """Kernels that have vectors of the last axis beside their rows."""
    vectors = {"bias_gelu": 1, "bias_tanh": 1, "rms_norm": 1, "layer_norm": 2, "batch_norm": 2}
    return tuple(_rows(function, s, *[s[-1:]] * vectors[function]) for s in shapes)


def _alike(function: str, count: int, *shapes: Shape) -> tuple[Rows, ...]:
    """Kernels of several arrays of one shape."""
    return tuple(_rows(function, *[s] * count) for s in shapes)


ROW_GROUPS: dict[str, tuple[Rows, ...]] = {
    "bias_gelu": _normed("bias_gelu", (160, 1280), (40, 52, 96), (1100, 1500)),
    "bias_tanh": _normed("bias_tanh", (75, 640), (640, 2200)),
    "residual_relu": _alike("residual_relu", 2, (34, 30, 176), (900, 72), (4, 70, 66, 120)),
    "gated": _alike("gated", 2, (88, 1376), (720, 1111)),
    "outer": (_rows("outer", (420,), (360,)), _rows("outer", (97,), (2600,))),
    "adam": _alike("adam", 4, (144, 520), (3, 3, 208, 304)),
    "turned_sum": (
        _rows("turned_sum", (260, 330), (330, 260)),
        _rows("turned_sum", (1300, 700), (700, 1300)),
    ),
    "turned_channels": (
        _rows("turned_channels", (2, 48, 34, 30), (48,)),
        _rows("turned_channels", (1, 152, 62, 58), (152,)),
    ),
    "sum_last": _alike("sum_last", 1, (360, 810), (48, 9000), (2600, 130)),
    "sum_first": _alike("sum_first", 1, (440, 760), (6000, 90), (70, 16000)),
    "sum_middle": _alike("sum_middle", 1, (24, 140, 96), (9, 900, 210)),
    "squares_all": _alike("squares_all", 1, (230000,), (2100000,)),
    "max_last": _alike("max_last", 1, (208, 1700), (3400, 84)),
    "argmax_last": _alike("argmax_last", 1, (176, 1450), (56, 12000)),
    "softmax": _alike("softmax", 1, (192, 700), (8, 60, 330), (24, 11000), (1400, 1900)),
    "log_softmax": _alike("log_softmax", 1, (240, 430), (90, 5200)),
    "logsumexp": _alike("logsumexp", 1, (310, 560), (36, 14000)),
    "layer_norm": _normed("layer_norm", (130, 960), (6, 70, 344), (2900, 480)),
    "rms_norm": _normed("rms_norm", (110, 1152), (18, 5000), (1700, 640)),
    "batch_norm": _normed("batch_norm", (6, 22, 20, 72), (12, 34, 30, 40)),
    "group_norm": _alike("group_norm", 1, (2, 380, 8, 14), (5, 700, 12, 10)),
    "cross_entropy": _alike("cross_entropy", 2, (150, 900), (40, 7000)),
    "softmax_backward": _alike("softmax_backward", 2, (170, 620), (1000, 1270)),
    "layer_norm_backward": (
        _rows("layer_norm_backward", (140, 880), (880,), (880,), (140, 880)),
        _rows("layer_norm_backward", (2300, 420), (420,), (420,), (2300, 420)),
    ),
    "rms_norm_backward": (
        _rows("rms_norm_backward", (230, 540), (540,), (230, 540)),
        _rows("rms_norm_backward", (800, 1720), (1720,), (800, 1720)),
    ),
    "gelu_backward": _alike("gelu_backward", 2, (190, 770), (1250, 1030)),
    "cross_entropy_backward": (
        _rows("cross_entropy_backward", (125, 980), (125, 980), (125,)),
        _rows("cross_entropy_backward", (52, 8800), (52, 8800), (52,)),
    ),
}
"""Elementwise groups, some with a transpose, reductions, rows, and gradients of these."""


def by_turns(groups: Mapping[str, tuple[Case, ...]]) -> dict[str, Case]:
    """The first of each group, then the second of each, and so on, by name."""
    turns = zip_longest(*([(f"{g}_{n}", c) for n, c in enumerate(of)] for g, of in groups.items()))
    return dict(found for found in chain.from_iterable(turns) if found is not None)


CONTRACTIONS: dict[str, Fused] = by_turns(GROUPS)
ROWS: dict[str, Rows] = by_turns(ROW_GROUPS)
KERNELS: dict[str, Fused | Rows] = {**CONTRACTIONS, **ROWS}
"""All kernels, in the order in which they are measured."""


def source(name: str) -> str:
    """What `hlotune.load` takes, in the root of the checkout."""
    return f"{FILE}:{name}"


def factory(name: str) -> Factory:
    """The factory of a kernel's program.  Raises KeyError for an unknown name."""
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
        groups = ", ".join([*GROUPS, *ROW_GROUPS])
        raise AttributeError(
            f"expected one of {groups}, and a number behind it, got {name!r}"
        ) from None

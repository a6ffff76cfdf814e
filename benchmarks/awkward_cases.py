"""Kernels of awkward extents: primes, odd channels, small batches, whose shapes nobody tuned for.

Each case is a factory of this module under its name:

    tune run benchmarks/awkward_cases.py:conv2d_26x26x160 --trials 128
"""

from collections.abc import Callable
from typing import Any

from benchmarks.fused import Fused
from benchmarks.operations import Array, Convolution, Product, Shape
from benchmarks.row_functions import Rows

FILE = "benchmarks/awkward_cases.py"
Factory = Callable[[], tuple[Callable[..., Any], tuple[Array, ...]]]


def _convolution(size: Shape, inputs: int, outputs: int, window: int, **more: Any) -> Fused:
    padding = (window - 1) // 2
    return Fused(
        Convolution(
            size=size, inputs=inputs, outputs=outputs, window=window, padding=padding, **more
        )
    )


CASES: dict[str, Fused | Rows] = {
    "conv2d_26x26x160": _convolution((26, 26), 160, 192, 3),
    "conv2d_17x19x97": _convolution((17, 19), 97, 131, 3),
    "conv2d_31x23x61_strided": _convolution((31, 23), 61, 103, 3, stride=2, batch=3),
    "conv2d_13x13x211_1x1": _convolution((13, 13), 211, 127, 1, batch=2),
    "conv1d_331x61": _convolution((331,), 61, 83, 5),
    "depthwise_37x41x101": _convolution((37, 41), 101, 101, 3, groups=101),
    "gemm_127x509x251": Fused(Product(m=127, k=509, n=251)),
    "gemm_3x1021x769": Fused(Product(m=3, k=1021, n=769)),
    "softmax_101x997": Rows("softmax", ((101, 997),)),
    "layer_norm_331x509": Rows("layer_norm", ((331, 509), (509,), (509,))),
    "sum_first_1009x331": Rows("sum_first", ((1009, 331),)),
    "bias_gelu_211x769": Rows("bias_gelu", ((211, 769), (769,))),
}


def source(name: str) -> str:
    """What `hlotune.load` takes, in the root of the checkout."""
    return f"{FILE}:{name}"


def factory(name: str) -> Factory:
    """The factory of a case's program.  Raises KeyError for an unknown name."""
    case = CASES[name]
    return lambda: (case.__call__, case.inputs())


def __getattr__(name: str) -> Factory:
    """The factories, by the names that a program's source has."""
    try:
        return factory(name)
    except KeyError:
        raise AttributeError(f"expected one of {', '.join(CASES)}, got {name!r}") from None

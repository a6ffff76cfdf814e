"""The operator cases as data: convolutions of ResNet-18 and matrix products, all f32, batch 1.

Each case is a factory of this module under its name, and under its name with `_frozen` the same
with the weights as constants:

    tune run benchmarks/cases.py:C6 --trials 200
    tune run benchmarks/cases.py:gemm_1024_frozen --trials 200
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from hlotune.deploy.freeze import freeze

FROZEN = "_frozen"
FILE = "benchmarks/cases.py"

Array = NDArray[np.float32]
Factory = Callable[[], tuple[Callable[..., jax.Array], tuple[Array, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """NHWC by HWIO, square in image and window."""

    size: int
    inputs: int
    outputs: int
    window: int
    stride: int
    padding: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of weights and image."""
        return (
            (self.window, self.window, self.inputs, self.outputs),
            (1, self.size, self.size, self.inputs),
        )

    def __call__(self, weights: jax.Array, image: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            image,
            weights,
            (self.stride, self.stride),
            [(self.padding, self.padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """(..., m, k) by (..., k, n)."""

    m: int
    k: int
    n: int
    batch: tuple[int, ...] = ()

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the right operand, which stands for the weights, and the left."""
        return (*self.batch, self.k, self.n), (*self.batch, self.m, self.k)

    def __call__(self, weights: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.matmul(x, weights)


Case = Convolution | Product


def _convolution(
    size: int, inputs: int, outputs: int, window: int, stride: int, padding: int
) -> Convolution:
    return Convolution(
        size=size, inputs=inputs, outputs=outputs, window=window, stride=stride, padding=padding
    )


CASES: dict[str, Case] = {
    "C1": _convolution(224, 3, 64, 7, 2, 3),
    "C2": _convolution(56, 64, 64, 3, 1, 1),
    "C3": _convolution(56, 64, 64, 1, 1, 0),
    "C4": _convolution(56, 64, 128, 3, 2, 1),
    "C5": _convolution(56, 64, 128, 1, 2, 0),
    "C6": _convolution(28, 128, 128, 3, 1, 1),
    "C7": _convolution(28, 128, 256, 3, 2, 1),
    "C8": _convolution(28, 128, 256, 1, 2, 0),
    "C9": _convolution(14, 256, 256, 3, 1, 1),
    "C10": _convolution(14, 256, 512, 3, 2, 1),
    "C11": _convolution(14, 256, 512, 1, 2, 0),
    "C12": _convolution(7, 512, 512, 3, 1, 1),
    "gemm_512": Product(m=512, k=512, n=512),
    "gemm_1024": Product(m=1024, k=1024, n=1024),
    "gemm_2048": Product(m=2048, k=2048, n=2048),
    "gemm_128x768x3072": Product(m=128, k=768, n=3072),
    "gemm_1x4096x4096": Product(m=1, k=4096, n=4096),
    "gemm_12x128x64x128": Product(batch=(12,), m=128, k=64, n=128),
}


def source(name: str) -> str:
    """What `hlotune.load` takes, in the root of the checkout."""
    return f"{FILE}:{name}"


def factory(name: str) -> Factory:
    """Of a case, with weights as arguments or constants.  Raises KeyError for an unknown name."""
    case = CASES[name.removesuffix(FROZEN)]

    def make() -> tuple[Callable[..., jax.Array], tuple[Array, ...]]:
        rng = np.random.default_rng(0)
        weights, x = (rng.normal(size=shape).astype(np.float32) for shape in case.shapes)

        def function(weights: jax.Array, x: jax.Array) -> jax.Array:
            return case(weights, x)

        if name.endswith(FROZEN):
            return freeze(function, jnp.asarray(weights)), (x,)
        return function, (weights, x)

    return make


def __getattr__(name: str) -> Factory:
    """The factories, by the names that a program's source has."""
    try:
        return factory(name)
    except KeyError:
        names = ", ".join(CASES)
        raise AttributeError(f"expected one of {names}, got {name!r}") from None

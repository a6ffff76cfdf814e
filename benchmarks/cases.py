"""The operator cases as data, batch 1: products, and the convolutions that papers measure.

Each case is a factory of this module under its name, and under its name with `_frozen` the same
with the weights as constants:

    tune run benchmarks/cases.py:C6 --trials 200
    tune run benchmarks/cases.py:gemm_1024_frozen --trials 200

`C6_nchw` has its channels before its image, `C6_input_gradient` and `C6_weight_gradient` are its
backward forms, `C6_bf16` and `C6_int8` have other elements.  Before `_frozen` they come in this
order: gradient, layout, element.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.jax_operations import computed, inputs_of
from benchmarks.operations import (
    Array,
    Channels,
    Convolution,
    Direction,
    Element,
    Operation,
    Product,
    Shape,
)
from hlotune.deploy.freeze import freeze

FROZEN = "_frozen"
FILE = "benchmarks/cases.py"

Factory = Callable[[], tuple[Callable[..., jax.Array], tuple[Array, ...]]]


def _image(
    size: Shape, inputs: int, outputs: int, window: int, stride: int, padding: int, **more: Any
) -> Convolution:
    """A convolution, with arguments in the order in which papers have them."""
    return Convolution(
        size=size,
        inputs=inputs,
        outputs=outputs,
        window=window,
        stride=stride,
        padding=padding,
        **more,
    )


def _square(size: int, *extents: int, **more: Any) -> Convolution:
    inputs, outputs, window, stride, padding = extents
    return _image((size, size), inputs, outputs, window, stride, padding, **more)


def _depthwise(size: int, channels: int, stride: int) -> Convolution:
    return _square(size, channels, channels, 3, stride, 1, groups=channels)


RESNET: dict[str, Operation] = {
    "C1": _square(224, 3, 64, 7, 2, 3),
    "C2": _square(56, 64, 64, 3, 1, 1),
    "C3": _square(56, 64, 64, 1, 1, 0),
    "C4": _square(56, 64, 128, 3, 2, 1),
    "C5": _square(56, 64, 128, 1, 2, 0),
    "C6": _square(28, 128, 128, 3, 1, 1),
    "C7": _square(28, 128, 256, 3, 2, 1),
    "C8": _square(28, 128, 256, 1, 2, 0),
    "C9": _square(14, 256, 256, 3, 1, 1),
    "C10": _square(14, 256, 512, 3, 2, 1),
    "C11": _square(14, 256, 512, 1, 2, 0),
    "C12": _square(7, 512, 512, 3, 1, 1),
}
"""The convolutions of TVM's paper, arXiv 1802.04799."""

MOBILENET: dict[str, Operation] = {
    "D1": _depthwise(112, 32, 1),
    "D2": _depthwise(112, 64, 2),
    "D3": _depthwise(56, 128, 1),
    "D4": _depthwise(56, 128, 2),
    "D5": _depthwise(28, 256, 1),
    "D6": _depthwise(28, 256, 2),
    "D7": _depthwise(14, 512, 1),
    "D8": _depthwise(14, 512, 2),
    "D9": _depthwise(7, 1024, 1),
}
"""The depthwise convolutions of the same paper."""

PRODUCTS: dict[str, Operation] = {
    "gemm_512": Product(m=512, k=512, n=512),
    "gemm_1024": Product(m=1024, k=1024, n=1024),
    "gemm_2048": Product(m=2048, k=2048, n=2048),
    "gemm_128x768x3072": Product(m=128, k=768, n=3072),
    "gemm_1x4096x4096": Product(m=1, k=4096, n=4096),
    "gemm_12x128x64x128": Product(batch=(12,), m=128, k=64, n=128),
}

ANSOR: dict[str, Operation] = {
    "GMM1": Product(m=128, k=128, n=128),
    "GMM2": Product(m=32, k=512, n=512),
    "C1D1": _image((256,), 64, 128, 3, 2, 1),
    "C1D2": _image((128,), 128, 256, 1, 2, 0),
    "C1D3": _image((64,), 256, 256, 5, 1, 2),
    "C1D4": _image((32,), 512, 512, 3, 1, 1),
    "C3D1": _image((16, 224, 224), 3, 64, 7, 2, 3),
    "C3D2": _image((16, 56, 56), 64, 64, 1, 1, 0),
    "C3D3": _image((16, 14, 14), 256, 256, 3, 1, 1),
    "C3D4": _image((16, 7, 7), 512, 512, 3, 1, 1),
    "GRP1": _square(224, 4, 64, 7, 2, 3, groups=4),
    "GRP2": _square(56, 64, 64, 1, 1, 0, groups=4),
    "GRP3": _square(14, 256, 256, 3, 1, 1, groups=4),
    "GRP4": _square(7, 512, 512, 3, 1, 1, groups=4),
    "DIL1": _square(224, 3, 64, 7, 2, 3, dilation=2),
    "DIL2": _square(56, 64, 64, 1, 1, 0, dilation=2),
    "DIL3": _square(14, 256, 256, 3, 1, 1, dilation=2),
    "DIL4": _square(7, 512, 512, 3, 1, 1, dilation=2),
    "T2D1": _square(4, 512, 256, 4, 2, 1, transposed=True),
    "T2D2": _square(8, 256, 128, 4, 2, 1, transposed=True),
    "T2D3": _square(16, 128, 64, 4, 2, 1, transposed=True),
    "T2D4": _square(32, 64, 3, 4, 2, 1, transposed=True),
}
"""The operators of Ansor's paper, arXiv 2006.06762; its first grouped one has 3 inputs, which
cannot be divided into 4 groups.
"""

SAME = {
    "GMM3": "gemm_512",
    "GMM4": "gemm_1024",
    "C2D1": "C1",
    "C2D2": "C3",
    "C2D3": "C9",
    "C2D4": "C12",
    "DEP1": "D1",
    "DEP2": "D2",
    "DEP3": "D8",
    "DEP4": "D9",
    "DIL2": "C3",
}
"""Ansor's cases that stand here by other names; a dilated window of one tap is a plain one."""

GRADIENTS: tuple[Direction, ...] = ("input_gradient", "weight_gradient")


def _gradients(cases: Iterable[str]) -> dict[str, Operation]:
    found = {name: RESNET[name] for name in cases}
    return {
        f"{name}_{direction}": replace(operation, direction=direction)
        for name, operation in found.items()
        if isinstance(operation, Convolution)
        for direction in GRADIENTS
    }


def _with_channels(channels: Channels, cases: dict[str, Operation]) -> dict[str, Operation]:
    moved = {
        name: replace(operation, channels=channels)
        for name, operation in cases.items()
        if isinstance(operation, Convolution)
    }
    return {f"{name}_{moved[name].layout.lower()}": case for name, case in moved.items()}


def _with_element(element: Element, cases: dict[str, Operation]) -> dict[str, Operation]:
    return {f"{name}_{element}": replace(case, element=element) for name, case in cases.items()}  # type: ignore[type-var]


def _all() -> dict[str, Operation]:
    ansor = {name: case for name, case in ANSOR.items() if name not in SAME}
    backward = _gradients(["C2", "C6", "C9"])
    last = RESNET | PRODUCTS | MOBILENET | ansor | backward
    first = _with_channels("first", last)
    narrow = PRODUCTS | {name: (last | first)[name] for name in ("C6", "C6_nchw")}
    return last | first | _with_element("bf16", narrow) | _with_element("int8", narrow)


CASES: dict[str, Operation] = _all()


def selected(patterns: Iterable[str], families: Iterable[str] = ()) -> list[str]:
    """Names of cases in their order here, by names or patterns as files have them, and by family.

    A pattern that ends on `_frozen` gives names that do; no family means all.

    Raises:
        ValueError: a pattern fits no case, or a family has none.
    """
    wanted, families = list(patterns), set(families)
    spelled = [form for name in CASES for form in forms(name)]
    known = {case.family for case in CASES.values()}
    unknown = [p for p in wanted if not any(fits(name, p) for name in spelled)]
    if unknown or families - known:
        raise ValueError(
            f"expected cases among {', '.join(CASES)} and families among "
            f"{', '.join(sorted(known))}, got {', '.join([*unknown, *sorted(families - known)])}"
        )
    return [
        name
        for name in spelled
        if any(fits(name, p) for p in wanted)
        and (not families or CASES[name.removesuffix(FROZEN)].family in families)
    ]


def fits(name: str, pattern: str) -> bool:
    """`C*` fits C6 and not C6_frozen: that both forms are wanted is said otherwise."""
    same_form = name.endswith(FROZEN) == pattern.endswith(FROZEN)
    return same_form and fnmatchcase(name, pattern)


def forms(name: str) -> list[str]:
    """Names of a case with weights as arguments and, where it has any, as constants."""
    return [name, name + FROZEN] if CASES[name].has_weights else [name]


def source(name: str) -> str:
    """What `hlotune.load` takes, in the root of the checkout."""
    return f"{FILE}:{name}"


def factory(name: str) -> Factory:
    """The factory of a case, with weights as arguments or constants.  Raises KeyError for an
    unknown name.
    """
    operation = CASES[name.removesuffix(FROZEN)]
    if name not in forms(name.removesuffix(FROZEN)):
        raise KeyError(name)

    def function(weights: jax.Array, x: jax.Array) -> jax.Array:
        return computed(operation, weights, x)

    def make() -> tuple[Callable[..., jax.Array], tuple[Array, ...]]:
        weights, x = inputs_of(operation)
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

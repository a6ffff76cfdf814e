"""Convolutions that Winograd's algorithm takes, as kernels with values."""

from typing import Any

import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

from tests.support.computes import Case, whole

LAYOUTS = ("NHWC HWIO", "NCHW OIHW", "NHWC OIHW", "CHWN IHWO")


def windowed(
    *, images: int = 1, size: tuple[int, ...] = (9, 11), channels: int = 5, features: int = 19,
    window: tuple[int, ...] = (3, 3), pads: tuple[tuple[int, int], ...] = ((1, 1), (1, 1)),
    layout: str = LAYOUTS[0], frozen: bool = False, residual: bool = False, backward: bool = False,
    dilation: int = 1, dtype: str = "float32",
) -> Case:  # fmt: skip
    """A convolution of stride 1 with bias and relu, and what is added before the relu."""
    letters = ("H", "HW", "DHW")[len(size) - 1]
    data, taps = (s.replace("HW", letters) for s in layout.split())
    numbers = {"N": images, "C": channels, **dict(zip(letters, size, strict=True))}
    kernel = {"I": channels, "O": features, **dict(zip(letters, window, strict=True))}
    x = whole(*(numbers[c] for c in data), dtype=dtype)
    w = whole(*(kernel[c] for c in taps), seed=1, dtype=dtype)
    at = [features if c == "C" else 1 for c in data]
    bias = whole(*at, seed=2, dtype=dtype)

    def function(x: Any, w: Any, bias: Any) -> Any:
        if backward:
            w = jnp.flip(w, [taps.index(c) for c in letters])
        y = lax.conv_general_dilated(
            x, w, (1,) * len(size), pads, rhs_dilation=(dilation,) * len(size),
            dimension_numbers=(data, taps, data),
        )  # fmt: skip
        y = y + bias
        return jnp.maximum(y + y * 0.5 if residual else y, 0)

    name = f"{layout} {images}x{size}x{channels}->{features} {window} {pads}"
    name += f" dilated by {dilation}" * (dilation > 1)
    name += f" {dtype}" * (dtype != "float32")
    name += " frozen" * frozen + " residual" * residual + " backward" * backward
    if frozen:
        return Case(name, lambda x, b: function(x, jnp.asarray(w), b), (x, bias))
    return Case(name, function, (x, w, bias))


@st.composite
def windows(draw: st.DrawFn) -> Case:
    """Any layout, number of images, padding; sizes that tiles do not divide; one axis to three, of
    which one may have other taps; some dilated."""
    axes, dilation = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2)))
    least = 4 if dilation == 1 else 7
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes))
    window = [3] * axes
    if axes > 1:
        window[draw(st.integers(0, axes - 1))] = draw(st.sampled_from((1, 2, 3, 3)))
    return windowed(
        images=draw(st.integers(1, 2)),
        size=tuple(draw(st.integers(least, 11 if axes < 3 else least + 2)) for _ in range(axes)),
        channels=draw(st.sampled_from((2, 3, 8, 17))),
        features=draw(st.sampled_from((2, 8, 17, 40))),
        window=tuple(window),
        pads=pads,
        layout=draw(st.sampled_from(LAYOUTS)),
        frozen=draw(st.booleans()),
        residual=draw(st.booleans()),
        backward=draw(st.booleans()),
        dilation=dilation,
    )

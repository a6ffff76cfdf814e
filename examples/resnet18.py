"""ResNet-18 for one 224 x 224 image: NHWC, f32, batch norm in the open.

    tune run examples/resnet18.py:model --budget 10m       # weights are arguments
    tune run examples/resnet18.py:frozen --budget 10m      # weights are constants of the program

Weights are random: times do not depend on them, and nothing has to be downloaded.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Params = dict[str, dict[str, jax.Array]]
Arrays = dict[str, dict[str, np.ndarray]]

STAGES = (64, 128, 256, 512)
"""Channels of each stage of two blocks; every stage but the first halves the image."""
CLASSES = 1000
EPSILON = 1e-5


def forward(params: Params, image: jax.Array) -> jax.Array:
    """(1, 224, 224, 3) to (1, 1000) logits."""
    x = jnp.maximum(_norm(params["stem_norm"], _convolve(params["stem"], image, 2)), 0)
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
    )
    for stage in range(len(STAGES)):
        x = _block(params, f"{stage}.0", x, stride=1 if stage == 0 else 2)
        x = _block(params, f"{stage}.1", x, stride=1)
    return x.mean((1, 2)) @ params["head"]["weights"] + params["head"]["bias"]


def _block(params: Params, name: str, x: jax.Array, stride: int) -> jax.Array:
    """Two convolutions, and past them x itself or, where the shape changes, a 1x1 convolution."""
    y = _convolve(params[f"{name}.first"], x, stride)
    y = jnp.maximum(_norm(params[f"{name}.first_norm"], y), 0)
    y = _norm(params[f"{name}.second_norm"], _convolve(params[f"{name}.second"], y, 1))
    if f"{name}.short" in params:
        x = _norm(params[f"{name}.short_norm"], _convolve(params[f"{name}.short"], x, stride))
    return jnp.maximum(x + y, 0)


def _convolve(layer: dict[str, jax.Array], x: jax.Array, stride: int) -> jax.Array:
    """Padded so that a stride of 1 keeps the image's size."""
    weights = layer["weights"]
    border = weights.shape[0] // 2
    return lax.conv_general_dilated(
        x,
        weights,
        (stride, stride),
        [(border, border)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _norm(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Batch norm at inference, from running statistics."""
    scale = lax.rsqrt(layer["variance"] + EPSILON) * layer["gamma"]
    return (x - layer["mean"]) * scale + layer["beta"]


def parameters(rng: np.random.Generator) -> Arrays:
    """Weights after He, and statistics near what they give: activations stay of order 1."""
    params: Arrays = {"stem": _weights(rng, 7, 3, 64), "stem_norm": _statistics(rng, 64)}
    channels = STAGES[0]
    for stage, width in enumerate(STAGES):
        for block in ("0", "1"):
            name = f"{stage}.{block}"
            params[f"{name}.first"] = _weights(rng, 3, channels, width)
            params[f"{name}.first_norm"] = _statistics(rng, width)
            params[f"{name}.second"] = _weights(rng, 3, width, width)
            params[f"{name}.second_norm"] = _statistics(rng, width)
            if channels != width:
                params[f"{name}.short"] = _weights(rng, 1, channels, width)
                params[f"{name}.short_norm"] = _statistics(rng, width)
            channels = width
    head = rng.normal(0, np.sqrt(1 / channels), (channels, CLASSES))
    params["head"] = {
        "weights": head.astype(np.float32),
        "bias": rng.normal(0, 0.1, CLASSES).astype(np.float32),
    }
    return params


def _weights(
    rng: np.random.Generator, size: int, inputs: int, outputs: int
) -> dict[str, np.ndarray]:
    deviation = np.sqrt(2 / (size * size * inputs))
    weights = rng.normal(0, deviation, (size, size, inputs, outputs))
    return {"weights": weights.astype(np.float32)}


def _statistics(rng: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    """Running mean and variance near those of He's weights, and a learned scale and shift."""
    return {
        "mean": rng.normal(0, 0.1, width).astype(np.float32),
        "variance": rng.uniform(1.6, 2.4, width).astype(np.float32),
        "gamma": rng.uniform(0.6, 1.0, width).astype(np.float32),
        "beta": rng.normal(0, 0.1, width).astype(np.float32),
    }


def model() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """Weights are arguments: as a framework calls a network that it may train on."""
    rng = np.random.default_rng(0)
    params = parameters(rng)
    return forward, (params, rng.normal(size=(1, 224, 224, 3)).astype(np.float32))


def frozen() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """Weights are constants: as a network is served.  Their packing costs nothing at run time."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(jnp.asarray, parameters(rng))

    def classify(image: jax.Array) -> jax.Array:
        return forward(params, image)

    return classify, (rng.normal(size=(1, 224, 224, 3)).astype(np.float32),)

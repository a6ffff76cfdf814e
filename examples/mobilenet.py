"""MobileNetV2 for one 224 x 224 image, f32, both layouts: depthwise convolutions of 3 x 3.

tune run examples/mobilenet.py:model --budget 2m
tune run examples/mobilenet.py:nchw --budget 2m
"""

import jax
import jax.numpy as jnp

from examples.layers import (
    Factory,
    Weights,
    batch_norm,
    convolution_weights,
    convolve,
    dense,
    dense_weights,
    frozen,
    generator,
    image,
    norm_weights,
    over_positions,
)

STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, blocks, and the stride of the first block."""
STEM, LAST, CLASSES = 32, 1280, 1000


def relu6(x: jax.Array) -> jax.Array:
    return jnp.clip(x, 0, 6)


def forward(weights: Weights, x: jax.Array, layout: str = "NHWC") -> jax.Array:
    """One image to (1, 1000) logits."""
    x = relu6(_unit(weights["stem"], x, 2, layout))
    for stage, (_, _, count, stride) in enumerate(STAGES):
        for n in range(count):
            x = _block(weights[f"{stage}.{n}"], x, stride if n == 0 else 1, layout)
    x = relu6(_unit(weights["last"], x, 1, layout))
    return dense(weights["head"], over_positions(x, layout))


def _unit(unit: Weights, x: jax.Array, stride: int, layout: str, groups: int = 1) -> jax.Array:
    y = convolve(unit["conv"], x, stride, layout=layout, groups=groups)
    return batch_norm(unit["norm"], y, layout)


def _block(block: Weights, x: jax.Array, stride: int, layout: str) -> jax.Array:
    """Wider, depthwise, narrower again; around it x itself where the shape is the same."""
    y = relu6(_unit(block["wider"], x, 1, layout)) if "wider" in block else x
    channels = y.shape[-1 if layout == "NHWC" else 1]
    y = relu6(_unit(block["depthwise"], y, stride, layout, channels))
    y = _unit(block["narrower"], y, 1, layout)
    return x + y if x.shape == y.shape else y


def parameters(layout: str = "NHWC", narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng = generator()

    def unit(size: int, inputs: int, outputs: int, groups: int = 1) -> Weights:
        conv = convolution_weights(rng, size, inputs, outputs, layout, groups)
        return {"conv": conv, "norm": norm_weights(rng, outputs)}

    before = STEM // narrower
    weights: Weights = {"stem": unit(3, 3, before)}
    for stage, (expansion, channels, count, _) in enumerate(STAGES):
        for n in range(count):
            wide, block = expansion * before, Weights()
            if expansion > 1:
                block["wider"] = unit(1, before, wide)
            block["depthwise"] = unit(3, wide, wide, wide)
            block["narrower"] = unit(1, wide, channels // narrower)
            weights[f"{stage}.{n}"], before = block, channels // narrower
    weights["last"] = unit(1, before, LAST // narrower)
    weights["head"] = dense_weights(rng, LAST // narrower, CLASSES)
    return weights


def network(layout: str = "NHWC", size: int = 224, narrower: int = 1) -> Factory:
    def function(weights: Weights, x: jax.Array) -> jax.Array:
        return forward(weights, x, layout)

    return frozen(function, parameters(layout, narrower), image(1, size, 3, layout))


def model() -> Factory:
    return network()


def nchw() -> Factory:
    return network("NCHW")


def small() -> Factory:
    """For tests."""
    return network(size=32, narrower=8)

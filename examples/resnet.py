"""ResNet-18 and ResNet-50 for 224 x 224 images, f32, batch norm in the open, both layouts.

tune run examples/resnet.py:resnet50 --budget 2m
tune run examples/resnet.py:resnet50_nchw --budget 2m
tune run examples/resnet.py:training --budget 5m       # ResNet-18, a step of Adam, batch 32
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
    max_pool,
    norm_weights,
    over_positions,
    relu,
)

DEPTHS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""Blocks of each stage."""
WIDTHS = (64, 128, 256, 512)
CLASSES = 1000
RATE, FIRST_DECAY, SECOND_DECAY = 1e-3, 0.9, 0.999
"""The learning rate and the two decay rates of Adam."""


def forward(weights: Weights, x: jax.Array, layout: str = "NHWC") -> jax.Array:
    """(batch, size, size, 3), or with channels ahead of the image, to (batch, 1000) logits."""
    x = relu(_unit(weights["stem"], x, 2, layout))
    x = max_pool(x, 3, 2, 1, layout)
    for name, block in weights["blocks"].items():
        stride = 2 if name.endswith(".0") and name != "0.0" else 1
        x = _block(block, x, stride, layout)
    return dense(weights["head"], over_positions(x, layout))


def _unit(unit: Weights, x: jax.Array, stride: int, layout: str) -> jax.Array:
    return batch_norm(unit["norm"], convolve(unit["conv"], x, stride, layout=layout), layout)


def _block(block: Weights, x: jax.Array, stride: int, layout: str) -> jax.Array:
    """Two or three convolutions beside a shortcut; the 3 x 3 one has the stride."""
    short = _unit(block["short"], x, stride, layout) if "short" in block else x
    units = block["units"]
    strided = 0 if len(units) == 2 else 1
    for n, unit in enumerate(units):
        x = _unit(unit, x, stride if n == strided else 1, layout)
        x = relu(x) if n + 1 < len(units) else x
    return relu(x + short)


def parameters(depth: int = 18, layout: str = "NHWC", narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng = generator()

    def unit(size: int, inputs: int, outputs: int) -> Weights:
        conv = convolution_weights(rng, size, inputs, outputs, layout)
        return {"conv": conv, "norm": norm_weights(rng, outputs)}

    widths = [width // narrower for width in WIDTHS]
    weights: Weights = {"stem": unit(7, 3, widths[0]), "blocks": {}}
    before, wider = widths[0], 1 if depth == 18 else 4
    for stage, (width, count) in enumerate(zip(widths, DEPTHS[depth], strict=True)):
        for n in range(count):
            after, block = wider * width, Weights()
            sizes = [(3, before, width), (3, width, width)]
            if depth != 18:
                sizes = [(1, before, width), (3, width, width), (1, width, after)]
            block["units"] = [unit(*size) for size in sizes]
            if before != after:
                block["short"] = unit(1, before, after)
            weights["blocks"][f"{stage}.{n}"], before = block, after
    weights["head"] = dense_weights(rng, before, CLASSES)
    return weights


def network(depth: int, layout: str = "NHWC", size: int = 224, narrower: int = 1) -> Factory:
    def function(weights: Weights, x: jax.Array) -> jax.Array:
        return forward(weights, x, layout)

    return frozen(function, parameters(depth, layout, narrower), image(1, size, 3, layout))


def resnet18() -> Factory:
    return network(18)


def resnet18_nchw() -> Factory:
    return network(18, "NCHW")


def resnet50() -> Factory:
    return network(50)


def resnet50_nchw() -> Factory:
    return network(50, "NCHW")


def small() -> Factory:
    """For tests."""
    return network(50, "NCHW", size=32, narrower=16)


def loss(weights: Weights, x: jax.Array, labels: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(forward(weights, x))
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


State = dict[str, Any]
"""Weights, running means of gradients and of their squares, and the number of the step."""


def adam_step(state: State, x: jax.Array, labels: jax.Array) -> tuple[State, jax.Array]:
    """One step of Adam, and the loss before it."""
    value, gradient = jax.value_and_grad(loss)(state["weights"], x, labels)
    step = state["step"] + 1
    first = jax.tree.map(
        lambda m, g: FIRST_DECAY * m + (1 - FIRST_DECAY) * g, state["first"], gradient
    )
    second = jax.tree.map(
        lambda v, g: SECOND_DECAY * v + (1 - SECOND_DECAY) * g * g, state["second"], gradient
    )
    rate = RATE * jnp.sqrt(1 - SECOND_DECAY**step) / (1 - FIRST_DECAY**step)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), state["weights"], first, second
    )
    return {"weights": weights, "first": first, "second": second, "step": step}, value


def training(batch: int = 32, size: int = 224, narrower: int = 1) -> Factory:
    weights = parameters(18, narrower=narrower)
    nothing = jax.tree.map(np.zeros_like, weights)
    state = {"weights": weights, "first": nothing, "second": nothing, "step": np.float32(0)}
    labels = np.arange(batch, dtype=np.int32) % CLASSES
    return adam_step, (state, image(batch, size), labels)


def small_training() -> Factory:
    """For tests."""
    return training(2, 32, 16)

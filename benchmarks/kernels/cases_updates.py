"""Updates of many arrays, which are donated: Adam and SGD over the parameters of networks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.kernels.case import Case, Given, f32, positive, small

Shapes = Sequence[tuple[int, ...]]


def resnet50() -> list[tuple[int, ...]]:
    """Convolutions, scales and biases of their norms, and the last layer: 161 arrays."""
    found: list[tuple[int, ...]] = [(7, 7, 3, 64), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes = [(1, inputs, width), (3, width, width), (1, width, 4 * width)]
            if block == 0:
                sizes.append((1, inputs, 4 * width))
            for window, before, after in sizes:
                found += [(window, window, before, after), (after,), (after,)]
            inputs = 4 * width
    return [*found, (2048, 1000), (1000,)]


def bert() -> list[tuple[int, ...]]:
    """Embeddings and twelve layers of BERT base: 199 arrays."""
    found: list[tuple[int, ...]] = [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
    for _ in range(12):
        found += [(768, 768), (768,)] * 4 + [(768,), (768,)]
        found += [(768, 3072), (3072,), (3072, 768), (768,), (768,), (768,)]
    return [*found, (768, 768), (768,)]


def adam(*given: jax.Array) -> list[jax.Array]:
    """Parameters, first moments, second moments, gradients; gives the first three anew."""
    parameters, first, second, gradients = quarters(given)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
    parameters = [
        p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)
        for p, m, v in zip(parameters, first, second, strict=True)
    ]
    return [*parameters, *first, *second]


def momentum(*given: jax.Array) -> list[jax.Array]:
    """Parameters, velocities, gradients, with weight decay; gives the first two anew."""
    third = len(given) // 3
    parameters, velocity, gradients = given[:third], given[third : 2 * third], given[2 * third :]
    velocity = tuple(
        0.9 * v + g + 1e-4 * p for p, v, g in zip(parameters, velocity, gradients, strict=True)
    )
    return [p - 0.01 * v for p, v in zip(parameters, velocity, strict=True)] + list(velocity)


def quarters(given: Sequence[Any]) -> list[list[Any]]:
    size = len(given) // 4
    return [list(given[k * size : (k + 1) * size]) for k in range(4)]


def torch_adam(t: Any, *given: Any) -> Any:
    """Adam in place, over lists of tensors, as `torch.optim` computes it."""
    parameters, first, second, gradients = quarters(given)
    with t.no_grad():
        t._foreach_lerp_(first, gradients, 0.1)
        t._foreach_mul_(second, 0.999)
        t._foreach_addcmul_(second, gradients, gradients, 0.001)
        below = t._foreach_sqrt(second)
        t._foreach_add_(below, 1e-8)
        t._foreach_addcdiv_(parameters, first, below, -1e-3)
    return [*parameters, *first, *second]


def torch_momentum(t: Any, *given: Any) -> Any:
    third = len(given) // 3
    parts = [list(given[k * third : (k + 1) * third]) for k in range(3)]
    parameters, velocity, gradients = parts
    with t.no_grad():
        decayed = t._foreach_add(gradients, parameters, alpha=1e-4)
        t._foreach_mul_(velocity, 0.9)
        t._foreach_add_(velocity, decayed)
        t._foreach_add_(parameters, velocity, alpha=-0.01)
    return [*parameters, *velocity]


def _drawn(shapes: Shapes, *parts: str) -> tuple[Given, ...]:
    return tuple(
        f32(*shape, draw=positive if part == "second" else small)
        for part in parts for shape in shapes
    )  # fmt: skip


def _adam(name: str, shapes: Shapes) -> Case:
    given = _drawn(shapes, "parameters", "first", "second", "gradients")
    return Case(name=name, jax=adam, torch=torch_adam, given=given, donated=3 * len(shapes))


CASES = (
    _adam("Adam of ResNet-50", resnet50()),
    _adam("Adam of BERT base", bert()),
    Case(
        name="SGD with momentum of ResNet-50", jax=momentum, torch=torch_momentum,
        given=_drawn(resnet50(), "parameters", "velocity", "gradients"),
        donated=2 * len(resnet50()),
    ),
)  # fmt: skip

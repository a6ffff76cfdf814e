"""Windows: pooling and its gradients, depthwise convolutions, stencils."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.case import Case, f32

_WINDOW, _STRIDES = (1, 3, 3, 1), (1, 2, 2, 1)


def max_pool(x: jax.Array) -> jax.Array:
    found: jax.Array = jax.lax.reduce_window(x, -np.inf, jax.lax.max, _WINDOW, _STRIDES, "SAME")
    return found


def average_pool(x: jax.Array) -> jax.Array:
    found: jax.Array = jax.lax.reduce_window(x, 0.0, jax.lax.add, _WINDOW, _STRIDES, "VALID") / 9
    return found


def total_variation(x: jax.Array) -> jax.Array:
    found = jnp.zeros((), x.dtype)
    for axis in range(3):
        found += (jnp.diff(x, axis=axis) ** 2).sum()
    return found


def depthwise(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"), feature_group_count=512
    )


def rolled(x: jax.Array) -> jax.Array:
    for _ in range(6):
        x = 0.2 * (
            x + jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        )
    return x


def jacobi_2d(x: jax.Array) -> jax.Array:
    inner = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return x.at[1:-1, 1:-1].set(inner)


def jacobi_3d(x: jax.Array) -> jax.Array:
    c = slice(1, -1)
    total = x[:-2, c, c] + x[2:, c, c] + x[c, :-2, c] + x[c, 2:, c] + x[c, c, :-2] + x[c, c, 2:]
    return jnp.pad(total / 6, 1)


def torch_max_pool(t: Any, x: Any) -> Any:
    """Padding of `SAME` comes behind the last row alone."""
    padded = t.nn.functional.pad(x.permute(0, 3, 1, 2), (0, 1, 0, 1), value=-np.inf)
    return t.nn.functional.max_pool2d(padded, 3, 2).permute(0, 2, 3, 1)


def torch_average_pool(t: Any, x: Any) -> Any:
    return t.nn.functional.avg_pool2d(x.permute(0, 3, 1, 2), 3, 2).permute(0, 2, 3, 1)


def torch_gradient(function: Any) -> Any:
    def call(t: Any, x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return t.autograd.grad(function(t, leaf).sum(), leaf)[0]

    return call


def torch_total_variation(t: Any, x: Any) -> Any:
    return sum((t.diff(x, dim=axis) ** 2).sum() for axis in range(3))


def torch_rolled(t: Any, x: Any) -> Any:
    for _ in range(6):
        x = 0.2 * (x + x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1))
    return x


def torch_jacobi_2d(t: Any, x: Any) -> Any:
    found = x.clone()
    found[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return found


def torch_jacobi_3d(t: Any, x: Any) -> Any:
    c = slice(1, -1)
    total = x[:-2, c, c] + x[2:, c, c] + x[c, :-2, c] + x[c, 2:, c] + x[c, c, :-2] + x[c, c, 2:]
    return t.nn.functional.pad(total / 6, (1, 1, 1, 1, 1, 1))


def torch_depthwise(t: Any, x: Any, w: Any) -> Any:
    return t.nn.functional.conv1d(x, w, padding=2, groups=512)


def torch_depthwise_gradient(t: Any, x: Any, w: Any) -> Any:
    leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
    return t.autograd.grad(torch_depthwise(t, *leaves).sum(), leaves)


_IMAGE = (f32(1, 112, 112, 64),)
CASES = (
    Case(
        name="max pool 3x3 s2 112x112x64", given=_IMAGE, jax=max_pool, torch=torch_max_pool,
    ),
    Case(
        name="max pool gradient 3x3 s2 112x112x64", given=_IMAGE,
        jax=jax.grad(lambda x: max_pool(x).sum()), torch=torch_gradient(torch_max_pool),
    ),
    Case(
        name="average pool 3x3 s2 112x112x64", given=_IMAGE, jax=average_pool,
        torch=torch_average_pool,
    ),
    Case(
        name="average pool gradient 3x3 s2 112x112x64", given=_IMAGE,
        jax=jax.grad(lambda x: average_pool(x).sum()), torch=torch_gradient(torch_average_pool),
    ),
    Case(
        name="P1 total variation 256^3", given=(f32(256, 256, 256),), jax=total_variation,
        torch=torch_total_variation, goal_s=2.1e-3, tolerance=2e-3,
    ),
    Case(
        name="P1 gradient 256^3", given=(f32(256, 256, 256),), jax=jax.grad(total_variation),
        torch=torch_gradient(torch_total_variation), goal_s=5e-3,
    ),
    Case(
        name="P11 depthwise 32x512x1024", given=(f32(32, 512, 1024), f32(512, 1, 5)),
        jax=depthwise, torch=torch_depthwise, goal_s=15e-3,
        onnx=lambda g, x, w: g.Conv(x, w, group=512, pads=[2, 2]),
    ),
    Case(
        name="P11 gradient 32x512x1024", given=(f32(32, 512, 1024), f32(512, 1, 5)),
        jax=jax.grad(lambda x, w: depthwise(x, w).sum(), (0, 1)), tolerance=2e-3,
        torch=torch_depthwise_gradient,
    ),
    Case(
        name="P18 six rolled steps 1024x1024", given=(f32(1024, 1024),), jax=rolled,
        torch=torch_rolled, goal_s=1.8e-3,
    ),
    Case(
        name="Jacobi step 1024x1024", given=(f32(1024, 1024),), jax=jacobi_2d,
        torch=torch_jacobi_2d,
    ),
    Case(
        name="Jacobi step 64^3", given=(f32(64, 64, 64),), jax=jacobi_3d, torch=torch_jacobi_3d,
    ),
)  # fmt: skip

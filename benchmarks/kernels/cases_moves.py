"""Programs that only move elements: rolls, repetitions, pads, concatenations, blocks of pixels."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.case import Case, f32


def _streamed(x: Any) -> Any:
    """The nine populations of a lattice, each moved to its neighbour in a periodic box."""
    return jnp.stack([jnp.roll(x[i], (i % 3 - 1, i // 3 - 1), (0, 1)) for i in range(9)])


def _streamed_by_torch(t: Any, x: Any) -> Any:
    moved = [t.roll(x[i], (i % 3 - 1, i // 3 - 1), (0, 1)) for i in range(9)]
    return t.stack(moved)


CASES = (
    Case(
        name="streaming of a lattice 9x512x512", given=(f32(9, 512, 512),),
        jax=_streamed, torch=_streamed_by_torch,
    ),
    Case(
        name="roll along both axes 1024x1024", given=(f32(1024, 1024),),
        jax=lambda x: jnp.roll(x, (3, 5), (0, 1)),
        torch=lambda t, x: t.roll(x, (3, 5), (0, 1)),
    ),
    Case(
        name="pixels twice 8x56x56x64", given=(f32(8, 56, 56, 64),),
        jax=lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2),
        torch=lambda t, x: x[:, :, None, :, None].expand(8, 56, 2, 56, 2, 64).reshape(
            8, 112, 112, 64),
    ),
    Case(
        name="pixels twice NCHW 2x64x56x56", given=(f32(2, 64, 56, 56),),
        jax=lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3),
        torch=lambda t, x: t.nn.functional.interpolate(x, scale_factor=2.0),
        onnx=lambda g, x: g.Resize(
            x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    ),
    Case(
        name="features to pixels 8x28x28x256", given=(f32(8, 28, 28, 256),),
        jax=lambda x: x.reshape(8, 28, 28, 2, 2, 64).transpose(0, 1, 3, 2, 4, 5).reshape(
            8, 56, 56, 64),
        torch=lambda t, x: x.reshape(8, 28, 28, 2, 2, 64).permute(0, 1, 3, 2, 4, 5).reshape(
            8, 56, 56, 64),
    ),
    Case(
        name="channels shuffled 8x28x28x128", given=(f32(8, 28, 28, 128),),
        jax=lambda x: x.reshape(8, 28, 28, 2, 64).swapaxes(3, 4).reshape(8, 28, 28, 128),
        torch=lambda t, x: x.reshape(8, 28, 28, 2, 64).swapaxes(3, 4).reshape(8, 28, 28, 128),
    ),
    Case(
        name="shifted windows 8x56x56x96", given=(f32(8, 56, 56, 96),),
        jax=lambda x: jnp.roll(x, (-3, -3), (1, 2)).reshape(8, 8, 7, 8, 7, 96).swapaxes(
            2, 3).reshape(512, 49, 96),
        torch=lambda t, x: t.roll(x, (-3, -3), (1, 2)).reshape(8, 8, 7, 8, 7, 96).swapaxes(
            2, 3).reshape(512, 49, 96),
    ),
    Case(
        name="pad 1024x1024", given=(f32(1024, 1024),),
        jax=lambda x: jnp.pad(x, 1),
        torch=lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    ),
    Case(
        name="features together 8x56x56x64 and 32", given=(f32(8, 56, 56, 64), f32(8, 56, 56, 32)),
        jax=lambda x, y: jnp.concatenate([x, y], -1),
        torch=lambda t, x, y: t.cat([x, y], -1),
        onnx=lambda g, x, y: g.Concat(x, y, axis=-1),
    ),
    Case(
        name="heads four times 8x8x512x64", given=(f32(8, 8, 512, 64),),
        jax=lambda x: jnp.repeat(x, 4, 1),
        torch=lambda t, x: x[:, :, None].expand(8, 8, 4, 512, 64).reshape(8, 32, 512, 64),
    ),
    Case(
        name="neighbours side by side 8x28x28x9x64", given=(f32(8, 28, 28, 64),),
        jax=lambda x: jnp.stack(
            [jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))[:, i : i + 28, j : j + 28]
             for i in range(3) for j in range(3)], 3),
        torch=lambda t, x: t.stack(
            [t.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))[:, i : i + 28, j : j + 28]
             for i in range(3) for j in range(3)], 3),
    ),
)  # fmt: skip

"""Fourier transforms, and what surrounds them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of


def _complex(x: jax.Array) -> jax.Array:
    """Numbers whose parts, or whose real part alone, lie along the last axis."""
    return x[..., 0] if x.shape[-1] == 1 else jax.lax.complex(x[..., 0], x[..., 1])


def _parts(x: jax.Array, dtype: Any) -> jax.Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


def _fourier(node: Node, x: Value, length: Any = None, axis: Any = None) -> Value:
    """The axis was an attribute until opset 20."""
    x = jnp.asarray(x)
    along = node.get("axis", 1) if axis is None and node.opset < 20 else -2
    along = along if axis is None else int(axis.reshape(-1)[0])
    along = axis_of(along, x.ndim)
    count = x.shape[along] if length is None else int(length.reshape(-1)[0])
    backwards, half = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    values = _complex(x)
    if backwards and half:
        if length is None:
            count = 2 * (x.shape[along] - 1)
        return jnp.fft.irfft(values, count, along)[..., None].astype(x.dtype)
    if half:
        return _parts(jnp.fft.rfft(jnp.real(values), count, along), x.dtype)
    return _parts((jnp.fft.ifft if backwards else jnp.fft.fft)(values, count, along), x.dtype)


def _short_time(node: Node, x: Value, step: Any, window: Value = None, length: Any = None) -> Value:
    """Transforms of frames (batch, frames, frequencies, parts)."""
    x = jnp.asarray(x)
    size = int(length.reshape(-1)[0]) if length is not None else window.shape[0]
    by = int(step.reshape(-1)[0])
    count = (x.shape[1] - size) // by + 1
    places = np.arange(count)[:, None] * by + np.arange(size)
    frames = _complex(x if x.ndim == 3 else x[..., None])[:, jnp.asarray(places)]
    if window is not None:
        frames = frames * jnp.asarray(window)
    if node.get("onesided", 1):
        return _parts(jnp.fft.rfft(jnp.real(frames), size, -1), x.dtype)
    return _parts(jnp.fft.fft(frames, size, -1), x.dtype)


def _mel_weights(node: Node, *inputs: Value) -> Value:
    raise node.refusal("of more values than are kept as constants", "make it an initialiser")


ROWS = {
    "DFT": Operator(_fourier, {1: "length", 2: "axis"}),
    "MelWeightMatrix": Operator(_mel_weights, dict(enumerate(["size"] * 5))),
    "STFT": Operator(_short_time, {1: "step", 3: "length"}),
}

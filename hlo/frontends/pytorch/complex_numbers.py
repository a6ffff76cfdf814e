"""Complex numbers, and transforms of Fourier."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Value, floating, rows

FORWARDS = ("backward", "ortho", "forward")
"""JAX's names for how a transform is divided, in the order of PyTorch's numbers 0, 1 and 2: not at
all, by the root of how many values it adds up, and by how many they are.  JAX names the direction
that is divided, so a transform that is not is named after the one back."""
BACKWARDS = ("forward", "ortho", "backward")
"""The same for transforms back."""


def _polar(abs: Value, angle: Value) -> Any:
    abs, angle = jnp.broadcast_arrays(abs, angle)
    return lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


def _complex(real: Value, imag: Value) -> Any:
    return lax.complex(*jnp.broadcast_arrays(real, imag))


def _of_pairs(self: Value) -> Any:
    x = jnp.asarray(self)
    return lax.complex(x[..., 0], x[..., 1])


def _as_pairs(self: Value) -> Any:
    return jnp.stack([jnp.real(self), jnp.imag(self)], -1)


def _real(self: Value) -> Any:
    return jnp.real(jnp.asarray(self))


def _imaginary(self: Value) -> Any:
    return jnp.imag(jnp.asarray(self))


def _angle(self: Value) -> Any:
    """The angle of a complex number; a real one has the angle 0 or half a turn, a zero always 0."""
    x = floating(self)
    if jnp.iscomplexobj(x):
        return jnp.angle(x)
    turned = jnp.where(x < 0, jnp.asarray(np.pi, x.dtype), jnp.asarray(0, x.dtype))
    return jnp.where(jnp.isnan(x), x, turned)


def _conjugate(self: Value) -> Any:
    return jnp.conj(jnp.asarray(self))


def _negated(self: Value) -> Any:
    return -jnp.asarray(self)


def _itself(self: Value) -> Any:
    return self


def _of_complex(self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    transform, norms = (jnp.fft.fftn, FORWARDS) if forward else (jnp.fft.ifftn, BACKWARDS)
    return transform(jnp.asarray(self), axes=dim, norm=norms[normalization])


def _of_real(self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return transform(jnp.asarray(self), axes=dim, norm=FORWARDS[normalization])


def _to_real(self: Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    x = jnp.asarray(self)
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    return jnp.fft.irfftn(x, sizes, dim, BACKWARDS[normalization])


ROWS = {
    **rows(
        True, view_as_complex=_of_pairs, view_as_real=_as_pairs, real=_real, imag=_imaginary,
        conj=_conjugate, _conj=_conjugate, resolve_conj=_itself, _neg_view=_negated,
        resolve_neg=_itself,
    ),
    **rows(
        polar=_polar, complex=_complex, angle=_angle, _conj_physical=_conjugate,
        conj_physical=_conjugate, _fft_c2c=_of_complex, _fft_r2c=_of_real, _fft_c2r=_to_real,
    ),
}  # fmt: skip

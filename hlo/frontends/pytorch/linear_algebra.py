"""Factorizations of matrices, and what is computed by them; XLA calls LAPACK for them on CPUs.

PyTorch raises an error for a matrix that has none, as a singular one has no inverse; a program has
no errors, and gives numbers that are not finite there. Operations that give `info` in place of an
error give it here too: 0 for a matrix that went well.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import lu_solve

from hlotune.hlo.frontends.pytorch.types import Value, rows


def _side_by_side(*matrices: Value) -> list[jax.Array]:
    """Matrices with their batches broadcast to one another's."""
    arrays = [jnp.asarray(m) for m in matrices]
    batch = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    return [jnp.broadcast_to(a, (*batch, *a.shape[-2:])) for a in arrays]


def _turned(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _first_zero(pivots: Any) -> Any:
    """The place of the first pivot that is zero, counted from 1, and 0 where none is.

    PyTorch may factor the transposed matrix, and name another place of a matrix that has a zero.
    """
    count = pivots.shape[-1]
    places = jnp.arange(1, count + 1, dtype=np.int32)
    first = jnp.min(jnp.where(pivots == 0, places, count + 1), -1, initial=count + 1)
    return jnp.where(first > count, 0, first).astype(np.int32)


def _nothing(**inputs: Any) -> Any:
    return ()


def _cholesky(self: Value, upper: bool = False) -> Any:
    """Reads the triangle that it gives, and no other."""
    x = jnp.asarray(self)
    made = lax.linalg.cholesky(_turned(x) if upper else x, symmetrize_input=False)
    return _turned(made) if upper else made


def _cholesky_checked(self: Value, upper: bool = False, check_errors: bool = False) -> Any:
    """Also says 1 of a matrix that is not positive definite, whose factor is no number.

    PyTorch gives the order of the first leading part that is not, which JAX does not tell.
    """
    made = _cholesky(self, upper)
    failed = jnp.isnan(jnp.diagonal(made, axis1=-2, axis2=-1)).any(-1)
    return made, failed.astype(np.int32)


def _cholesky_solved(self: Value, input2: Value, upper: bool = False) -> Any:
    """Solves for a matrix by its factor."""
    right, factor = _side_by_side(self, input2)
    lower = _turned(factor) if upper else factor
    made = lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)
    return lax.linalg.triangular_solve(
        lower, made, left_side=True, lower=True, transpose_a=True, conjugate_a=True
    )


def _cholesky_inverse(self: Value, upper: bool = False) -> Any:
    return _cholesky_solved(jnp.eye(self.shape[-1], dtype=self.dtype), self, upper)


def _triangular(
    self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    a, b = _side_by_side(self, B)
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


def _qr(A: Value, mode: str = "reduced") -> Any:
    x = jnp.asarray(A)
    if mode == "r":
        return jnp.zeros(0, x.dtype), jnp.linalg.qr(x, mode="r")
    return tuple(jnp.linalg.qr(x, mode=mode))


def _svd(
    A: Value, full_matrices: bool = True, driver: str | None = None, compute_uv: bool = True
) -> Any:
    if not compute_uv:
        return None, _singular_values(A), None
    return tuple(jnp.linalg.svd(jnp.asarray(A), full_matrices=full_matrices))


def _reduced_svd(A: Value, full_matrices: bool = False, **inputs: Any) -> Any:
    return _svd(A, full_matrices, **inputs)


def _singular_values(A: Value, driver: str | None = None) -> Any:
    return jnp.linalg.svd(jnp.asarray(A), compute_uv=False)


def _eigh(self: Value = None, UPLO: str = "L", compute_v: bool = True, A: Value = None) -> Any:
    """Values and vectors of a symmetric matrix, of which one triangle is read."""
    x = jnp.asarray(self if A is None else A)
    if not compute_v:
        return _eigenvalues(x, UPLO), None
    return tuple(jnp.linalg.eigh(x, UPLO, symmetrize_input=False))


def _eigenvalues(self: Value, UPLO: str = "L") -> Any:
    return jnp.linalg.eigvalsh(jnp.asarray(self), UPLO, symmetrize_input=False)


def _inverse(self: Value = None, A: Value = None) -> Any:
    return _inverse_checked(self if A is None else A)[0]


def _inverse_checked(A: Value, check_errors: bool = False) -> Any:
    x = jnp.asarray(A)
    return _solve_checked(x, jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape))


def _determinant(self: Value = None, A: Value = None) -> Any:
    return jnp.linalg.det(jnp.asarray(self if A is None else A))


def _determinant_and_factors(A: Value) -> Any:
    return _determinant(A), None, None


def _sign_and_logarithm(self: Value = None, A: Value = None) -> Any:
    """By the pivots of a matrix of any size: products of numbers in range may lie out of it."""
    factors, swapped, _ = lax.linalg.lu(jnp.asarray(self if A is None else A))
    pivots = jnp.diagonal(factors, axis1=-2, axis2=-1)
    swaps = jnp.sum(swapped != jnp.arange(pivots.shape[-1], dtype=swapped.dtype), -1)
    sign = jnp.prod(jnp.sign(pivots), -1)
    return jnp.where(swaps % 2 == 1, -sign, sign), jnp.sum(jnp.log(jnp.abs(pivots)), -1)


def _sign_and_factors(A: Value) -> Any:
    return *_sign_and_logarithm(A), None, None


def _logarithm(self: Value) -> Any:
    """The logarithm of the determinant; that of a negative one is no number."""
    sign, size = _sign_and_logarithm(self)
    if jnp.iscomplexobj(sign):
        return jnp.log(sign) + size
    return jnp.where(sign == -1, jnp.asarray(np.nan, size.dtype), size)


def _solve(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    return _solve_checked(A, B, left)[0]


def _solve_checked(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    """Solves for columns; B is a batch of vectors where its shape is that of A without columns."""
    a, b = jnp.asarray(A), jnp.asarray(B)
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        made, info = _solve_checked(a, b[..., None], left)
        return made[..., 0], info
    factors, swapped, _ = lax.linalg.lu(a)
    info = _first_zero(jnp.diagonal(factors, axis1=-2, axis2=-1))
    factors, b = _side_by_side(factors, b)
    if left:
        return lu_solve((factors, swapped), b), info
    made = lu_solve((factors, swapped), jnp.swapaxes(b, -1, -2), trans=1)
    return jnp.swapaxes(made, -1, -2), info


def _solve_and_factors(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    made, info = _solve_checked(A, B, left)
    return made, None, None, info


def _power(self: Value, n: int) -> Any:
    return jnp.linalg.matrix_power(jnp.asarray(self), n)


def _cross(self: Value, other: Value, dim: int = -1) -> Any:
    a, b = jnp.broadcast_arrays(self, other)
    return jnp.cross(a, b, axis=dim)


def _trace(self: Value) -> Any:
    return jnp.trace(jnp.asarray(self))


ROWS = rows(
    linalg_cholesky=_cholesky, cholesky=_cholesky, linalg_cholesky_ex=_cholesky_checked,
    cholesky_solve=_cholesky_solved, cholesky_inverse=_cholesky_inverse,
    linalg_solve_triangular=_triangular, linalg_qr=_qr, linalg_svd=_svd,
    _linalg_svd=_reduced_svd, linalg_svdvals=_singular_values, linalg_eigh=_eigh,
    _linalg_eigh=_eigh, linalg_eigvalsh=_eigenvalues, linalg_inv=_inverse, inverse=_inverse,
    linalg_inv_ex=_inverse_checked, linalg_det=_determinant, det=_determinant,
    _linalg_det=_determinant_and_factors, linalg_slogdet=_sign_and_logarithm,
    slogdet=_sign_and_logarithm, _linalg_slogdet=_sign_and_factors, logdet=_logarithm,
    linalg_solve=_solve, linalg_solve_ex=_solve_checked, _linalg_solve_ex=_solve_and_factors,
    linalg_matrix_power=_power, matrix_power=_power, linalg_cross=_cross, trace=_trace,
    _linalg_check_errors=_nothing,
)  # fmt: skip

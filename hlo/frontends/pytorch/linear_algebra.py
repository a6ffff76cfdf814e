"""Factorizations of matrices, and what is computed by them; XLA calls LAPACK for them on CPUs.

PyTorch raises an error for a matrix that has none, as a singular one has no inverse; a program has
no errors, and gives numbers that are not finite there.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Value, rows


def _side_by_side(*matrices: Value) -> list[jax.Array]:
    """Matrices with their batches broadcast to one another's."""
    arrays = [jnp.asarray(m) for m in matrices]
    batch = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    return [jnp.broadcast_to(a, (*batch, *a.shape[-2:])) for a in arrays]


def _turned(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _no_errors(x: Any) -> Any:
    """What LAPACK says of each matrix: that it went well."""
    return jnp.zeros(x.shape[:-2], np.int32)


def _nothing(**inputs: Any) -> Any:
    return ()


def _cholesky(self: Value, upper: bool = False) -> Any:
    """Reads the triangle that it gives, and no other."""
    x = jnp.asarray(self)
    made = lax.linalg.cholesky(_turned(x) if upper else x, symmetrize_input=False)
    return _turned(made) if upper else made


def _cholesky_checked(self: Value, upper: bool = False, check_errors: bool = False) -> Any:
    return _cholesky(self, upper), _no_errors(self)


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
    return jnp.linalg.inv(jnp.asarray(self if A is None else A))


def _inverse_checked(A: Value, check_errors: bool = False) -> Any:
    return _inverse(A), _no_errors(A)


def _determinant(self: Value = None, A: Value = None) -> Any:
    return jnp.linalg.det(jnp.asarray(self if A is None else A))


def _determinant_and_factors(A: Value) -> Any:
    return _determinant(A), None, None


def _sign_and_logarithm(self: Value = None, A: Value = None) -> Any:
    return tuple(jnp.linalg.slogdet(jnp.asarray(self if A is None else A)))


def _sign_and_factors(A: Value) -> Any:
    return *_sign_and_logarithm(A), None, None


def _logarithm(self: Value) -> Any:
    """Of the determinant; of a negative one it is no number."""
    return jnp.log(_determinant(self))


def _solve(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    """Solves for columns; B is a batch of vectors where its shape is that of A without columns."""
    a, b = jnp.asarray(A), jnp.asarray(B)
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        return _solve(a, b[..., None], left)[..., 0]
    a, b = _side_by_side(a, b)
    if left:
        return jnp.linalg.solve(a, b)
    return jnp.swapaxes(jnp.linalg.solve(jnp.swapaxes(a, -1, -2), jnp.swapaxes(b, -1, -2)), -1, -2)


def _solve_checked(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    return _solve(A, B, left), _no_errors(A)


def _solve_and_factors(A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Any:
    return _solve(A, B, left), None, None, _no_errors(A)


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

"""How far a program's own results go where its inputs move by one rounding.

Where a maximum is taken of two numbers that are nearly equal, or a mask says whether one is
positive, the last bit of a sum decides which way a gradient goes: two programs that are right in
every operation are then as far apart as either is from itself with its inputs rounded.  No bound
of first order tells of that, so it is measured.  (What inputs explain is no error of a program:
Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 1.5.)
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.flat_calls import called
from hlotune.deploy.plain_values import apart
from hlotune.hlo.frontends.program import Program

Array = NDArray[Any]
TIMES_MOVED = 16.0
"""Times what a result moves by that another right program may be off: which of nearly equal numbers
is larger falls differently in each, and a kernel rounds more often than once."""


def nudged(values: Sequence[Array], seed: int = 0) -> tuple[Array, ...]:
    """Each finite number that is not zero goes to its neighbour towards zero or stays, at random;
    integers and bools stay."""
    rng = np.random.default_rng([seed, 3])
    return tuple(_nudged(np.asarray(v), rng) for v in values)


def _nudged(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype.kind == "c":
        parts = np.ascontiguousarray(value).view(value.real.dtype)
        numbers: Array = _nudged(parts, rng).view(value.dtype)
        return numbers.reshape(value.shape)
    if not _has_sign_and_size(value.dtype):
        return value
    bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").reshape(value.shape)
    moves = (value != 0) & np.isfinite(value) & (rng.random(value.shape) < 0.5)
    found: Array = (bits - moves.astype(bits.dtype)).view(value.dtype)
    return found.reshape(value.shape)


def _has_sign_and_size(dtype: np.dtype[Any]) -> bool:
    """Whether the bits of a number less one are its neighbour towards zero: floating types that
    NumPy knows, and bf16."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def moved(
    program: Program,
    default: Callable[..., Any],
    values: Sequence[Array],
    results: Sequence[Array],
) -> tuple[float, ...]:
    """How far each result of the default moves where its inputs are nudged: the root mean square of
    the differences over that of the result.  0 where nothing moves it.

    Args:
        values: the inputs, flat.
        results: what the default makes of them.
    """
    found = called(program, default, nudged(values))
    pairs = zip(results, found, strict=True)
    return tuple(apart(result, np.asarray(x)).error for result, x in pairs)

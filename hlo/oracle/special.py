"""The one door to scipy's special functions, which have no types.

They take a fifth of a second to import, and few kernels have any.
"""

from functools import cache
from typing import Any, cast

import numpy as np

from hlotune.hlo.oracle.bounded import Float, Values


@cache
def _special() -> Any:
    from scipy import special

    return special


def erf(x: Values) -> Float:
    return cast(Float, _special().erf(x))


def erfc(x: Values) -> Float:
    return cast(Float, _special().erfc(x))


def erf_inv(x: Values) -> Float:
    return cast(Float, _special().erfinv(x))


def logistic(x: Values) -> Float:
    return cast(Float, _special().expit(x))


def lgamma(x: Values) -> Float:
    return cast(Float, _special().gammaln(x))


def digamma(x: Values) -> Float:
    return cast(Float, _special().psi(x))


def bessel_i1e(x: Values) -> Float:
    return cast(Float, _special().i1e(x))


def rsqrt(x: Values) -> Float:
    return 1.0 / np.sqrt(np.asarray(x, np.float64))


def round_nearest_afz(x: Values) -> Float:
    return np.trunc(np.asarray(x + np.copysign(0.5, x), np.float64))

"""The one door to scipy's special functions, which have no types."""

from typing import cast

import numpy as np
from scipy import special

from hlotune.hlo.oracle.bounded import Float, Values


def erf(x: Values) -> Float:
    return cast(Float, special.erf(x))


def erfc(x: Values) -> Float:
    return cast(Float, special.erfc(x))


def erf_inv(x: Values) -> Float:
    return cast(Float, special.erfinv(x))


def logistic(x: Values) -> Float:
    return cast(Float, special.expit(x))


def lgamma(x: Values) -> Float:
    return cast(Float, special.gammaln(x))


def digamma(x: Values) -> Float:
    return cast(Float, special.psi(x))


def bessel_i1e(x: Values) -> Float:
    return cast(Float, special.i1e(x))


def rsqrt(x: Values) -> Float:
    return 1.0 / np.sqrt(np.asarray(x, np.float64))


def round_half_away(x: Values) -> Float:
    return np.trunc(np.asarray(x + np.copysign(0.5, x), np.float64))

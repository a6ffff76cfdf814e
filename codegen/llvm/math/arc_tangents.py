"""The angle of a point in the plane."""

from math import pi, tan

from hlotune.codegen.llvm.math.polynomials import ATAN
from hlotune.codegen.llvm.math.trigonometric import PI_HALF
from hlotune.codegen.llvm.math.vector_builder import Lanes

MIDDLE = tan(pi / 8)
"""From this quotient on the angle is taken from an eighth of the circle on."""
FLOAT_PI_HALF = (1.5707963705062866, -4.371139000186243e-08)
"""pi / 2 as a float, and what that lacks."""


def angle(t: Lanes, y: str, x: str) -> str:
    """The angle of the point (x, y), between -pi and pi: atan2, with the edges that C gives it."""
    across, up = t.magnitude(x), t.magnitude(y)
    steep = t.compare("gt", up, across)
    small, large = t.select(steep, across, up), t.select(steep, up, across)
    turn = _angle_of_quotient(t, *_scaled(t, small, large))
    behind = t.bits_are("slt", t.bits(x), 0)
    back = t.differ(steep, behind)
    turn = t.select(back, t.negate(turn), turn)
    high, lacks = _quarter(t)
    whole = t.select(behind, t.number(2 * high), t.number(0))
    rest = t.select(behind, t.number(2 * lacks), t.number(0))
    base = t.select(steep, t.number(high), whole)
    found = t.add(base, t.add(turn, t.select(steep, t.number(lacks), rest)))
    both = t.f.op(f"fcmp ord {t.type} {x}, {y}")
    return t.with_sign(t.select(both, found, t.add(x, y)), y)


def _quarter(t: Lanes) -> tuple[float, float]:
    return FLOAT_PI_HALF if t.element == "float" else PI_HALF


def _scaled(t: Lanes, small: str, large: str) -> tuple[str, str]:
    """The same quotient of numbers whose sum is finite, and of which the larger is not zero."""
    endless = t.compare("eq", large, t.number(float("inf")))
    same = t.compare("eq", small, large)
    small = t.select(endless, t.select(same, t.number(1), t.number(0)), small)
    large = t.select(endless, t.number(1), large)
    huge = t.compare("ge", large, t.number(1 / (4 * t.smallest)))
    scale = t.select(huge, t.number(0.25), t.number(1))
    none = t.compare("eq", large, t.number(0))
    large = t.select(none, t.number(1), t.multiply(large, scale))
    return t.multiply(small, scale), large


def _angle_of_quotient(t: Lanes, small: str, large: str) -> str:
    """The angle whose tangent is small / large, at most one; there is one division for all."""
    far = t.compare("gt", small, t.multiply(large, t.number(MIDDLE)))
    above = t.select(far, t.subtract(small, large), small)
    below = t.select(far, t.add(small, large), large)
    q = t.divide(above, below)
    z = t.multiply(q, q)
    found = t.multiply_add(t.multiply(z, t.polynomial(z, ATAN[t.element])), q, q)
    high, lacks = _quarter(t)
    eighth = t.select(far, t.number(high / 2), t.number(0))
    rest = t.select(far, t.number(lacks / 2), t.number(0))
    return t.add(eighth, t.add(found, rest))

"""Derives the numbers of codegen/llvm/math/polynomials.py and interval_tables.py: `python -m
tests.support.fit_polynomials` writes both.

Each polynomial interpolates its function at the Chebyshev nodes of its interval, in 60 digits, and
is rounded once.  That is within a factor of two of the best polynomial of the same degree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp
import numpy as np

MATH = Path(__file__).parents[2] / "codegen" / "llvm" / "math"
POLYNOMIALS, TABLES = MATH / "polynomials.py", MATH / "interval_tables.py"
HEADER = '''"""Coefficients of polynomials, constant term first, by the type they are evaluated in.

Written by `python -m tests.support.fit_polynomials`, where intervals and degrees stand:
interpolation at Chebyshev nodes in 60 digits.
"""
'''
TABLES_HEADER = '''"""Columns of numbers, one for each interval that a table has.

Written by `python -m tests.support.fit_polynomials`, where intervals and degrees stand.
"""

# fmt: off
'''
A_LINE = 3
"""Numbers of a column that stand in a line."""
ERFCX_CENTRE = 2
"""The centre of the map t = (x - 2) / (x + 2), which takes 0.5 .. infinity to -0.6 .. 1."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A function of z on an interval, and the degree for each type."""

    name: str
    comment: str
    function: Callable[[mp.mpf], mp.mpf]
    low: mp.mpf
    high: mp.mpf
    degrees: dict[str, int]


def erfcx(x: mp.mpf) -> mp.mpf:
    return mp.exp(x * x) * mp.erfc(x)


def on_line(t: mp.mpf) -> mp.mpf:
    """(x + centre) * erfcx(x) at the x that the map brings to t."""
    x = ERFCX_CENTRE * (1 + t) / (1 - t)
    return (x + ERFCX_CENTRE) * erfcx(x)


def from_zero(t: mp.mpf) -> mp.mpf:
    """What (x + 1) * erfcx(x) is above 1, as a multiple of t + 1 = 2 x / (x + 1)."""
    x = (1 + t) / (1 - t)
    return ((x + 1) * erfcx(x) - 1) / (t + 1)


def fits() -> list[Fit]:
    half, quarter = mp.log(2) / 2 * mp.mpf("1.001"), mp.pi / 4 * mp.mpf("1.001")
    near = half / 32 * mp.sqrt(mp.mpf(3) / 2)  # whose nodes leave r times the slope least error
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
    low, far = mp.mpf(-3) / 5, mp.mpf(27) + 1
    return [
        Fit(
            "EXP", "exp(r) = 1 + r + r^2 * EXP(r), |r| <= log(2) / 2",
            lambda r: mp.hyp1f1(1, 3, r) / 2, -half, half, {"float": 4, "double": 10},
        ),
        Fit(
            "EXP_SIXTEENTH", "exp(r) = 1 + r + r^2 * EXP_SIXTEENTH(r), |r| <= log(2) / 32",
            lambda r: mp.hyp1f1(1, 3, r) / 2, -half / 16, half / 16, {"float": 1},
        ),
        Fit(
            "EXP_THIRTY_SECOND", "exp(r) = 1 + r * EXP_THIRTY_SECOND(r), |r| <= log(2) / 64",
            lambda r: mp.hyp1f1(1, 2, r), -near, near, {"float": 1},
        ),
        Fit(
            "LOG", "log((1 + s) / (1 - s)) = 2 s + s^3 * LOG(s^2), |s| <= tanh(log(2) / 4)",
            lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z,
            mp.mpf(0), s**2 * mp.mpf("1.001"), {"float": 2, "double": 7},
        ),
        Fit(
            "LOG_TAIL", "log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + s^5 * LOG_TAIL(s^2)",
            lambda z: ((2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z - mp.mpf(2) / 3) / z,
            mp.mpf(0), s**2 * mp.mpf("1.001"), {"double": 8},
        ),
        Fit(
            "TANH", "tanh(x) = x + x^3 * TANH(x^2), |x| <= 0.55",
            lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            mp.mpf(0), mp.mpf("0.55") ** 2, {"float": 4, "double": 11},
        ),
        Fit(
            "ATAN", "atan(q) = q + q^3 * ATAN(q^2), |q| <= tan(pi / 8)",
            lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            mp.mpf(0), mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.001"), {"float": 4, "double": 11},
        ),
        Fit(
            "ERF", "erf(x) = x + x * ERF(x^2), |x| <= 1",
            lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
            mp.mpf(0), mp.mpf(1), {"float": 6, "double": 13},
        ),
        Fit(
            "ERFCX", "(x + 2) * exp(x^2) * erfc(x) = ERFCX((x - 2) / (x + 2)), 0.5 <= x <= 28",
            on_line, low, (far - ERFCX_CENTRE) / (far + ERFCX_CENTRE), {"float": 11, "double": 23},
        ),
        Fit(
            "ERFCX_FROM_ZERO",
            "(x + 1) * exp(x^2) * erfc(x) = 1 + (t + 1) * ERFCX_FROM_ZERO(t), "
            "t = (x - 1) / (x + 1)",
            from_zero, mp.mpf(-1), mp.mpf("9.1") / mp.mpf("11.1"), {"float": 11},
        ),
        Fit(
            "SINE", "sin(r) = r + r^3 * SINE(r^2), |r| <= pi / 4",
            lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            mp.mpf(0), quarter**2, {"float": 3, "double": 6},
        ),
        Fit(
            "COSINE", "cos(r) = 1 - r^2 / 2 + r^4 * COSINE(r^2), |r| <= pi / 4",
            lambda z: ((mp.cos(mp.sqrt(z)) - 1) / z + mp.mpf(1) / 2) / z,
            mp.mpf(0), quarter**2, {"float": 3, "double": 6},
        ),
        Fit(
            "CBRT", "cbrt(m) to 1 in 600, 0.35 <= m <= 2.83",
            mp.cbrt, mp.mpf("0.35"), mp.mpf("2.83"), {"float": 5, "double": 5},
        ),
    ]  # fmt: skip


def coefficients(fit: Fit, element: str) -> list[float]:
    count = fit.degrees[element] + 1
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    nodes = [middle + radius * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    powers = mp.matrix(count, count)
    for row, z in enumerate(nodes):
        for k in range(count):
            powers[row, k] = z**k
    solved = mp.lu_solve(powers, mp.matrix([fit.function(z) for z in nodes]))
    numbers = [solved[k] for k in range(count)]
    if element == "double":
        return [float(c) for c in numbers]
    return [float(np.float32(mp.nstr(c, 20))) for c in numbers]


INTERVALS = 3.875
"""Intervals of the table of the error function in a unit: the last of sixteen ends at 4."""
LIMIT = 3.99
DEGREE = 4
ERFCX_DEGREE = 6
TANH_DEGREE = 5
LAST = 3e-8
"""What is added at the end of the last interval, half a unit of the last place."""


def point(k: int) -> tuple[float, float]:
    """A point near the middle of an interval, and its error function."""
    return (0.0, 0.0) if k == 0 else exact_near(np.float32(k / INTERVALS), mp.erf)


def exact_near(middle: np.float32, function: Callable[[mp.mpf], mp.mpf]) -> tuple[float, float]:
    """A float nearby at which a function is a float as good as exactly, and that."""
    found = []
    for step in range(-128, 129):
        at = middle + np.float32(step) * np.spacing(middle)
        exact = function(mp.mpf(float(at)))
        value = np.float32(mp.nstr(exact, 20))
        found.append((abs(exact / mp.mpf(float(value)) - 1), float(at), float(value)))
    _, best, closest = min(found)
    return best, closest


def interval(k: int) -> list[float]:
    """The point, its value, and the slope from there as a polynomial; around 0 the slope less 1."""
    at, value = point(k)
    half = mp.mpf("0.5004")
    low, high = ((mp.mpf(k) + s * half) / INTERVALS - at for s in (-(k > 0), 1))
    less = 1 if k == 0 else 0

    def apart(d: mp.mpf) -> mp.mpf:
        found = ((mp.erf(at + d) - mp.erf(at)) / d if d else slope(at)) - less
        return found + (mp.mpf(LAST) * d / (high * high) if k == 15 else 0)  # the limit gives 1

    return [at, value, *interpolated(apart, low, high, DEGREE)]


def interpolated(
    function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, degree: int
) -> list[float]:
    """Coefficients of floats, by Chebyshev nodes."""
    return [as_float(c) for c in chebyshev(function, low, high, degree)]


def chebyshev(
    function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, degree: int
) -> list[mp.mpf]:
    """The coefficients of the polynomial through the function at Chebyshev nodes."""
    count = degree + 1
    middle, radius = (low + high) / 2, (high - low) / 2
    nodes = [middle + radius * mp.cos(mp.pi * (2 * n + 1) / (2 * count)) for n in range(count)]
    powers = mp.matrix([[d**n for n in range(count)] for d in nodes])
    solved = mp.lu_solve(powers, mp.matrix([function(d) for d in nodes]))
    return [solved[n] for n in range(count)]


def as_float(number: mp.mpf) -> float:
    return float(np.float32(mp.nstr(number, 20)))


def quarter_of_octave(k: int) -> tuple[mp.mpf, mp.mpf]:
    """Where a quarter of an octave of x + 1 begins, from 1 on, and how wide it is; rows are by the
    low four bits of exponent and quarter."""
    number = (k - 12) % 16
    low = mp.mpf(4 + number % 4) / 4 * 2 ** (number // 4) - 1
    return low, mp.mpf(2) ** (number // 4) / 4


def tanh_quarter(k: int) -> list[float]:
    """A point, its hyperbolic tangent, and the slope from there; around 0 the slope less 1."""
    low, width = quarter_of_octave(k)
    slack, start = width / 1000, low == 0
    at, value = (0.0, 0.0)
    if not start:
        at, value = exact_near(np.float32(float(low + width / 2)), mp.tanh)

    def apart(d: mp.mpf) -> mp.mpf:
        found = (mp.tanh(at + d) - mp.tanh(at)) / d if d else 1 - mp.tanh(at) ** 2
        return found - (1 if start else 0)

    begin = mp.mpf(0) if start else low - slack - at
    return [at, value, *interpolated(apart, begin, low + width + slack - at, TANH_DEGREE)]


def sixteenth(k: int) -> list[float]:
    """2^(k / 16) as a float, and what that lacks."""
    exact = mp.mpf(2) ** (mp.mpf(k) / 16)
    value = float(np.float32(mp.nstr(exact, 20)))
    return [value, float(np.float32(mp.nstr(exact - value, 20)))]


def thirty_second(k: int) -> float:
    return as_float(mp.mpf(2) ** (mp.mpf(k) / 32))


EIGHTHS_DEGREE = 3
FACTORS = 1.7, 1.913
"""Bounds of f for exponentials by eighths: what it multiplies lies right below two then, where
rounding takes the least."""


def eighths() -> tuple[list[float], list[float]]:
    """A polynomial of f exp(r), |r| <= log(2) / 16, and 2^(k / 8) / f, k from 0 to 7.

    f is, among all for which the constant term is a float, the one whose quotients are nearest to
    floats, in units of the last place of an exponential, and whose product for exp(0) is one.
    """
    radius = mp.log(2) / 16 * mp.mpf("1.001")
    plain = chebyshev(mp.exp, -radius, radius, EIGHTHS_DEGREE)
    first = np.arange(int(FACTORS[0] * 2**23), int(FACTORS[1] * 2**23)) / 2**23
    factors, worst = first / float(plain[0]), np.zeros(first.size)
    for k in range(8):
        exact = 2.0 ** (k / 8) / factors
        apart = np.abs(exact.astype(np.float32) / exact - 1)
        worst = np.maximum(worst, apart * 2.0 ** ((k + 0.5) / 8))
        if k == 0:
            one = exact.astype(np.float32) * first.astype(np.float32)
            worst[one != np.float32(1)] = np.inf
    best = int(np.argmin(worst))
    factor = mp.mpf(float(first[best])) / plain[0]
    return (
        [as_float(c * factor) for c in plain],
        [as_float(mp.mpf(2) ** (mp.mpf(k) / 8) / factor) for k in range(8)],
    )


def eighths_text() -> list[str]:
    return [
        line
        for name, numbers in zip(("EXP_EIGHTH", "EXP_EIGHTHS"), eighths(), strict=True)
        for line in columns(name, [[x] for x in numbers])
    ]


def quarter(k: int) -> list[float]:
    """A point in a quarter of an octave, and erfcx there, in powers of what x is apart."""
    low, width = quarter_of_octave(k)
    at = exact_near(np.float32(float(low + width / 2)), erfcx)[0]
    slack = width / 1000
    made = interpolated(
        lambda d: erfcx(at + d), low - slack - at, low + width + slack - at, ERFCX_DEGREE
    )
    return [at, *made]


def slope(x: float) -> mp.mpf:
    return 2 / mp.sqrt(mp.pi) * mp.exp(-(mp.mpf(x) ** 2))


def tables_text() -> str:
    """The text of the file of tables."""
    with mp.workdps(60):
        lines = [
            TABLES_HEADER,
            "# erf(x) = value + d * (slope + ...), d = x - point, a column for each, by intervals",
            f"ERF_INTERVALS, ERF_LIMIT = {INTERVALS}, {LIMIT}",
            *columns("ERF_TABLE", [interval(k) for k in range(16)]),
            "",
            "# erfcx(x) = c0 + d * (c1 + ...) with d = x - point, by quarters of octaves of x + 1",
            *columns("ERFCX_TABLE", [quarter(k) for k in range(16)]),
            "",
            "# tanh(x) = value + d * (slope + ...), d = x - point, by quarters of octaves of x + 1",
            *columns("TANH_TABLE", [tanh_quarter(k) for k in range(16)]),
            "",
            "# 2^(k / 16) = value + rest",
            *columns("EXP_TABLE", [sixteenth(k) for k in range(16)]),
            "",
            "# 2^(k / 32)",
            *columns("EXP_LONG_TABLE", [[thirty_second(k)] for k in range(32)]),
            "",
            "# f exp(r) = EXP_EIGHTH(r), |r| <= log(2) / 16, constant first, and 2^(k / 8) / f",
            *eighths_text(),
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def columns(name: str, rows: list[list[float]]) -> list[str]:
    lines = [f"{name} = ("]
    for column in zip(*rows, strict=True):
        numbers = [f"{x!r}," for x in column]
        inner = (" ".join(numbers[k : k + A_LINE]) for k in range(0, len(numbers), A_LINE))
        lines += ["    (", *(f"        {x}" for x in inner), "    ),"]
    return [*lines, ")"]


def text() -> str:
    """The text of the file of polynomials."""
    lines = [HEADER]
    with mp.workdps(60):
        for fit in fits():
            lines.append(f"# {fit.comment}\n{fit.name} = {{")
            for element in fit.degrees:
                lines.append(f'    "{element}": (')
                lines += [f"        {c!r}," for c in coefficients(fit, element)]
                lines.append("    ),")
            lines.append("}\n")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    POLYNOMIALS.write_text(text(), encoding="utf-8")
    TABLES.write_text(tables_text(), encoding="utf-8")

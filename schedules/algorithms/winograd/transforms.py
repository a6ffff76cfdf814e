"""The one-dimensional transforms of Winograd's convolution F(m, 3), as expressions.

Three taps and m outputs are a product of polynomials of degree 2 and m - 1.  It is evaluated at
m + 1 points and at infinity, multiplied there, and interpolated (Lavin and Gray, arXiv:1509.09308).
The points are 0 and pairs +-p, so that even and odd parts are shared between the points of a pair.
+-3/4, +-3/2 are three to eight times more accurate than +-1, +-2, and as exact in binary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

from hlotune.schedules.ir.expr import Apply, Const, Expr

TAPS = 3
MOST_AXES = 2
"""That are transformed: along three, F(4, 3) has 216 points, and their tiles pass the caches."""
PAIRS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(1),),
    4: (Fraction(3, 4), Fraction(3, 2)),
    6: (Fraction(1, 2), Fraction(1), Fraction(2)),
}
"""For each number of outputs, the points above zero; each stands there with both signs."""
LOOSE = frozenset({6})
"""Outputs of tiles whose errors pass 3e-6 of the largest result from some 64 channels on: no
points in eighths that were tried keep F(6, 3) below.  They need numerics `fast`."""
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of a convolution's window."""

    taps: int
    positions: int
    """The number of results along it."""
    stride: int
    """Inputs from one position to the next."""
    spread: int
    """Inputs from one tap to the next."""
    holes: int
    """Inputs that count as one; all but the first of them are zeros."""

    @property
    def phases(self) -> int:
        """Taps that a step of the positions passes, where the window is three steps long; else 1.

        Six taps of stride two are three taps of stride one, over pairs of inputs as channels.
        """
        phases, rest = divmod(self.taps, TAPS)
        return phases if not rest and self.stride == phases * self.spread else 1

    @property
    def steps(self) -> int:
        """Positions from one to the next whose windows share taps, as dilated ones' do; 0 for none.

        Those between them are other convolutions, of inputs of their own.
        """
        steps, rest = divmod(self.spread, self.stride)
        return 0 if rest else max(0, steps)

    @property
    def by_steps(self) -> "WindowAxis":
        """The axis with its phases as channels."""
        return self if self.phases == 1 else replace(self, taps=TAPS, spread=self.stride)


def transformed(axes: Sequence[WindowAxis]) -> tuple[int, ...]:
    """Numbers of the axes along which F(m, 3) computes tiles; none where it does not apply.

    Along one or two axes three taps walk as the positions do, or as every few of them: of three
    axes the two with the most positions, the last of equal ones.  Along all others taps are like
    channels, and positions like images, whose inputs each tap transforms again.
    """
    fit = [d for d, a in enumerate(axes) if a.taps == TAPS and a.positions >= 2 * a.steps > 0]
    longest = sorted(fit, key=lambda d: (axes[d].positions, d))[-MOST_AXES:]
    return tuple(sorted(longest)) if all(a.holes == 1 for a in axes) else ()


def inputs(m: int) -> int:
    """Inputs of a tile along one axis: as many as there are points, infinity among them."""
    return m + TAPS - 1


def of_inputs(m: int, d: Sequence[Expr]) -> list[Expr]:
    """Values at the points 0, +p, -p, ..., infinity, of as many inputs."""
    whole = _from_squares(PAIRS[m])
    result = [_sum(zip(whole, d[0::2], strict=True))]
    for p in PAIRS[m]:
        others = _from_squares(tuple(q for q in PAIRS[m] if q != p))
        odd, even = (_sum(zip(others, d[k : k + 2 * len(others) : 2], strict=True)) for k in (1, 2))
        result += [_sum([(1.0, even), (sign * float(p), odd)]) for sign in (1, -1)]
    return [*result, _sum(zip(whole, d[1::2], strict=True))]


def of_outputs(m: int, products: Sequence[Expr]) -> list[Expr]:
    """`m` outputs of the products at the points."""
    plus, minus = products[1:-1:2], products[2:-1:2]
    sums = [_sum([(1.0, a), (1.0, b)]) for a, b in zip(plus, minus, strict=True)]
    differences = [_sum([(1.0, a), (-1.0, b)]) for a, b in zip(plus, minus, strict=True)]
    result = []
    for power, factors in enumerate(_powers(m)):
        terms = [*zip(factors, differences if power % 2 else sums, strict=True)]
        terms += [(1.0, products[0])] if power == 0 else []
        terms += [(1.0, products[-1])] if power == m - 1 else []
        result.append(_sum(terms))
    return result


def of_taps(m: int, g: Sequence[Expr]) -> list[Expr]:
    """Values of the taps at the points, over the point's distances from the others."""
    return [_sum(zip(row, g, strict=True)) for row in _tap_factors(m)]


def points(m: int) -> tuple[Fraction, ...]:
    return (Fraction(0), *(sign * p for p in PAIRS[m] for sign in (1, -1)))


def tap_matrix(m: int) -> Matrix:
    """`(inputs(m), 3)`."""
    finite, rows = points(m), []
    for x in finite:
        apart = prod((x - y for y in finite if y != x), start=Fraction(1))
        rows.append(tuple(x**k / apart for k in range(TAPS)))
    return (*rows, (Fraction(0), Fraction(0), Fraction(1)))


def input_matrix(m: int) -> Matrix:
    """`(inputs(m), inputs(m))`."""
    finite, rows = points(m), []
    for x in finite:
        rows.append((*_from_roots([y for y in finite if y != x]), Fraction(0)))
    return (*rows, tuple(_from_roots(finite)))


def output_matrix(m: int) -> Matrix:
    """`(m, inputs(m))`."""
    return tuple(
        (*(x**power for x in points(m)), Fraction(int(power == m - 1))) for power in range(m)
    )


def separably(rule: str, m: int, values: Sequence[Expr], axes: int) -> list[Expr]:
    """A transform along each of `axes` axes of a cube of values, the last axis fastest.

    `rule` is a key of RULES.  Intermediate values are shared: one object, however often it is used.
    """
    transform = RULES[rule]
    size = round(len(values) ** (1 / axes))
    shape = [size] * axes
    cube = dict(zip(product(*(range(n) for n in shape)), values, strict=True))
    for axis in range(axes):
        lines: dict[tuple[int, ...], list[Expr]] = {}
        for place in product(*(range(n) for k, n in enumerate(shape) if k != axis)):
            line = [cube[(*place[:axis], k, *place[axis:])] for k in range(shape[axis])]
            lines[place] = transform(m, line)
        shape[axis] = len(next(iter(lines.values())))
        cube = {
            (*place[:axis], k, *place[axis:]): value
            for place, line in lines.items()
            for k, value in enumerate(line)
        }
    return [cube[place] for place in product(*(range(n) for n in shape))]


RULES = {"inputs": of_inputs, "outputs": of_outputs, "taps": of_taps}


@cache
def _from_squares(pairs: tuple[Fraction, ...]) -> tuple[float, ...]:
    """Coefficients, the constant first, of the product of (y - p^2)."""
    return tuple(map(float, _from_roots([p * p for p in pairs])))


@cache
def _powers(m: int) -> tuple[tuple[float, ...], ...]:
    """For each power below m, that power of the points above zero."""
    return tuple(tuple(float(p**power) for p in PAIRS[m]) for power in range(m))


@cache
def _tap_factors(m: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in tap_matrix(m))


def _from_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    result = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *result]
        result = [a - root * b for a, b in zip(shifted, [*result, Fraction(0)], strict=True)]
    return result


def _sum(terms: Iterable[tuple[float, Expr]]) -> Expr:
    """Zeros left out; terms of factor one first, so that each other one is a multiply-add."""
    kept = sorted(
        ((c, x) for c, x in terms if c), key=lambda term: (abs(term[0]) != 1, term[0] < 0)
    )
    factor, total = kept[0]
    dtype = total.dtype
    if factor != 1:
        total = Apply("multiply", (Const(factor, dtype), total), dtype)
    for c, x in kept[1:]:
        if abs(c) == 1:
            total = Apply("add" if c > 0 else "subtract", (total, x), dtype)
        else:
            scaled = Apply("multiply", (Const(c, dtype), x), dtype)
            total = Apply("add", (total, scaled), dtype)
    return total

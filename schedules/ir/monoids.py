"""How the values of a reduction become one: monoids, each of them a value.

A monoid merges two tuples of values into one, in any order, and has a tuple of identities that
changes no other.  The result of a reduction is that tuple merged with the values of all its points.
The names stand in what is printed of computes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hlotune.schedules.dtypes import BYTES, is_float, is_unsigned
from hlotune.schedules.ir.expr import Apply, Const, Expr, Given, distinct_operations

Values = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """Merges tuples of `arity` values; of types that the tuple of identities is asked for."""

    name: str
    arity: int
    identities: Callable[[tuple[str, ...]], tuple[Const, ...]]
    """By element types: the tuple that changes nothing that it is merged with."""
    merge: Callable[[Values, Values], Values]
    """Merges what has come together with what comes to it, as expressions over their parts."""
    finish: Callable[[Values], Values] | None = None
    """What readers take of the whole tuple, as expressions over its parts; None: the parts."""
    is_ordered: bool = False
    """Whether values come one by one in the order of their points: lanes of one vector do not."""

    def __str__(self) -> str:
        return self.name

    def merged(self, dtypes: tuple[str, ...]) -> Values:
        """The merge of two tuples of these types: what has come so far is given first."""
        given = tuple(Given(k, dtype) for k, dtype in enumerate(dtypes * 2))
        return self.merge(given[: self.arity], given[self.arity :])

    def operations(self, dtypes: tuple[str, ...]) -> int:
        """Arithmetic operations of one merge of tuples of these types."""
        return distinct_operations(self.merged(dtypes))


def _each(name: str, op: str, identity: Callable[[str], float | int]) -> Monoid:
    """An elementwise operation of two values that is associative and commutes."""

    def identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
        return tuple(Const(identity(dtype), dtype) for dtype in dtypes)

    def merge(old: Values, new: Values) -> Values:
        return tuple(Apply(op, pair, pair[0].dtype) for pair in zip(old, new, strict=True))

    return Monoid(name, 1, identities, merge)


def least(dtype: str) -> float | int:
    """The least value of a type; of floats minus infinity."""
    if is_float(dtype):
        return float("-inf")
    return 0 if is_unsigned(dtype) else -(1 << _bits(dtype) - 1)


def most(dtype: str) -> float | int:
    """The largest value of a type; of floats infinity."""
    if is_float(dtype):
        return float("inf")
    return (1 << _bits(dtype) - (not is_unsigned(dtype))) - 1


def _bits(dtype: str) -> int:
    return 1 if dtype == "i1" else 8 * BYTES[dtype]


def _zero(_: str) -> int:
    return 0


def _one(_: str) -> int:
    return 1


def _all_bits(dtype: str) -> float | int:
    return most(dtype) if is_unsigned(dtype) else -1


SUM = _each("sum", "add", _zero)
PROD = _each("prod", "multiply", _one)
MAX = _each("max", "maximum", least)
MIN = _each("min", "minimum", most)
AND = _each("and", "and", _all_bits)
OR = _each("or", "or", _zero)


def _argmax_identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
    value, index = dtypes
    return Const(least(value), value), Const(most(index), index)


def _argmax(old: Values, new: Values) -> Values:
    """The larger value with its index; of equal ones the lower index.  NaN is larger than all."""
    return _extreme("GT", old, new)


def _argmin_identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
    value, index = dtypes
    return Const(most(value), value), Const(most(index), index)


def _argmin(old: Values, new: Values) -> Values:
    """The smaller value with its index; of equal ones the lower index.  NaN is smaller than all."""
    return _extreme("LT", old, new)


def _extreme(direction: str, old: Values, new: Values) -> Values:
    (a, i), (b, j) = old, new
    ahead, equal = _compare(direction, b, a), _compare("EQ", b, a)
    if is_float(a.dtype):
        b_is_none = _compare("NE", b, b)
        ahead = _logic("or", ahead, _logic("and", b_is_none, _compare("EQ", a, a)))
        equal = _logic("or", equal, b_is_none)  # of two numbers that are none the lower index
    taken = _logic("or", ahead, _logic("and", equal, _compare("LT", j, i)))
    return _select(taken, b, a), _select(taken, j, i)


def _moments_identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
    return tuple(Const(0.0, dtype) for dtype in dtypes)


def _moments(old: Values, new: Values) -> Values:
    """Count, mean, and sum of squared deviations from it, of two samples together.

    Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances", 1979.  The mean is weighted, so that an infinite one stays what it is.
    """
    (n, mean, squares), (other_n, other_mean, other_squares) = old, new
    count, zero = _in("add", n, other_n), Const(0.0, n.dtype)
    part = _in("divide", Const(1.0, n.dtype), count)
    part = _select(_compare("EQ", count, zero), zero, part)
    own, other = _in("multiply", n, part), _in("multiply", other_n, part)
    apart = _in("subtract", other_mean, mean)
    # squared last: of an empty sample nothing comes, however far its mean lies
    spread = _in("multiply", apart, _in("multiply", apart, _in("multiply", n, other)))
    return (
        count,
        _in("add", _in("multiply", own, mean), _in("multiply", other, other_mean)),
        _in("add", _in("add", squares, other_squares), spread),
    )


def _mean_and_variance(whole: Values) -> Values:
    count, mean, squares = whole
    return mean, _in("divide", squares, count)


def _softmax_identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
    largest, total = dtypes
    return Const(least(largest), largest), Const(0.0, total)


def _softmax(old: Values, new: Values) -> Values:
    """The largest value, and the sum of the exponentials of all less it.

    A part whose largest value is that of both counts as it is, where both are infinite too.
    """
    (a, old_total), (b, new_total) = old, new
    largest = _in("maximum", a, b)

    def scaled(top: Expr, total: Expr) -> Expr:
        factor = Apply("exponential", (_in("subtract", top, largest),), total.dtype)
        same = _compare("EQ", top, largest)
        return _in("multiply", total, _select(same, Const(1.0, total.dtype), factor))

    return largest, _in("add", scaled(a, old_total), scaled(b, new_total))


def _in(op: str, a: Expr, b: Expr) -> Expr:
    """Two values of one type, and a result of it."""
    return Apply(op, (a, b), a.dtype)


def _compare(direction: str, a: Expr, b: Expr) -> Expr:
    return Apply(f"compare_{direction}", (a, b), "i1")


def _logic(op: str, a: Expr, b: Expr) -> Expr:
    return Apply(op, (a, b), "i1")


def _select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return Apply("select", (condition, yes, no), yes.dtype)


def selected(direction: str) -> Monoid:
    """(value, number): what has come so far stays as long as it compares so with what comes.

    NaN never does, so that the next value takes its place: the order of points decides.
    """

    def identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
        value, number = dtypes
        first = least(value) if direction in ("GE", "GT") else most(value)
        return Const(first, value), Const(0, number)

    def merge(old: Values, new: Values) -> Values:
        stays = _compare(direction, old[0], new[0])
        return tuple(_select(stays, a, b) for a, b in zip(old, new, strict=True))

    return Monoid(f"selected by {direction}", 2, identities, merge, is_ordered=True)


SELECTED = {direction: selected(direction) for direction in ("GE", "GT", "LE", "LT")}
"""By the comparison: those of select_and_scatter, where numbers count the elements of a window."""
ARGMAX = Monoid("argmax", 2, _argmax_identities, _argmax)
"""(value, index) of any ordered type and of integers."""
ARGMIN = Monoid("argmin", 2, _argmin_identities, _argmin)
"""The same of the least value."""
MOMENTS = Monoid("moments", 3, _moments_identities, _moments, _mean_and_variance)
"""(count, mean, sum of squared deviations), of one float type; finished (mean, variance).  An
element x is (1, x, 0)."""
SOFTMAX = Monoid("softmax", 2, _softmax_identities, _softmax)
"""(largest, sum of the exponentials less it), of one float type.  An element x is (x, 1)."""
MONOIDS: dict[str, Monoid] = {
    m.name: m for m in (SUM, PROD, MAX, MIN, AND, OR, ARGMAX, ARGMIN, MOMENTS, SOFTMAX)
}
"""By name."""

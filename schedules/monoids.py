"""How the values of a reduction become one: monoids, each of them a value.

A monoid merges two tuples of values into one, in any order, and has a tuple of identities that
changes no other.  The result of a reduction is that tuple merged with the values of all its points.
The names stand in what is printed of computes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hlotune.schedules.dtypes import BYTES, is_float, is_unsigned
from hlotune.schedules.expr import Apply, Const, Expr

Values = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """Merges tuples of `arity` values; of types that the tuple of identities is asked for."""

    name: str
    arity: int
    identities: Callable[[tuple[str, ...]], tuple[Const, ...]]
    """By element types: the tuple that changes nothing that it is merged with."""
    merge: Callable[[Values, Values], Values]
    """Of what has come together so far and what comes to it, as expressions over their parts."""

    def __str__(self) -> str:
        return self.name


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
MONOIDS: dict[str, Monoid] = {m.name: m for m in (SUM, PROD, MAX, MIN, AND, OR)}
"""By name."""

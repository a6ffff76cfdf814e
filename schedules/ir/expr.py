"""Affine index maps and the scalar expressions of a stage."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from hlotune.schedules.dtypes import GROUPS

Terms = tuple[tuple[str, int], ...]
"""(axis, coefficient)."""


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * axis)`; terms are sorted by axis and never zero."""

    terms: Terms = ()
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[str, int], constant: int = 0) -> "Affine":
        kept = [term for term in terms.items() if term[1]]
        if len(kept) > 1:
            kept.sort()
        return Affine(tuple(kept), constant)

    @staticmethod
    def weighted(parts: Iterable[tuple["Affine", int]]) -> "Affine":
        """The sum of affines, each times a factor."""
        terms, constant = dict[str, int](), 0
        for affine, factor in parts:
            constant += affine.constant * factor
            for axis, c in affine.terms:
                terms[axis] = terms.get(axis, 0) + c * factor
        return Affine.of(terms, constant)

    @staticmethod
    def axis(name: str, coefficient: int = 1) -> "Affine":
        return Affine.of({name: coefficient})

    @cached_property
    def coefficients(self) -> dict[str, int]:
        return dict(self.terms)

    @property
    def unit(self) -> int:
        """What all coefficients are multiples of; 1 where there are none."""
        return gcd(*(c for _, c in self.terms)) or 1

    def __add__(self, other: "Affine | int") -> "Affine":
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other) if other else self
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        return Affine.weighted(((self, 1), (other, 1)))

    def __sub__(self, other: "Affine") -> "Affine":
        if not other.terms:
            return Affine(self.terms, self.constant - other.constant) if other.constant else self
        if self.terms == other.terms:
            return Affine((), self.constant - other.constant)
        return self + other * -1

    def __mul__(self, factor: int) -> "Affine":
        if factor == 1:
            return self
        terms = tuple([(a, c * factor) for a, c in self.terms]) if factor else ()
        return Affine(terms, self.constant * factor)

    def substitute(self, axes: Mapping[str, "Affine"]) -> "Affine":
        """Puts an affine in the place of each named axis."""
        if not self.terms:
            return self
        if len(self.terms) == 1:
            axis, c = self.terms[0]
            return axes[axis] * c + self.constant if axis in axes else self
        parts = [(axes.get(axis) or Affine(((axis, 1),)), c) for axis, c in self.terms]
        return Affine.weighted(parts) + self.constant

    def value(self, axes: Mapping[str, int]) -> int:
        return self.constant + sum(c * axes[a] for a, c in self.terms)

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Least and largest value, when each axis lies in its inclusive range."""
        low = high = self.constant
        for axis, c in self.terms:
            a, b = ranges[axis]
            low, high = low + min(c * a, c * b), high + max(c * a, c * b)
        return low, high

    def __str__(self) -> str:
        parts = [a if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True)
class Const:
    value: float | int | bool
    dtype: str

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Lookup:
    """A place that data decides: what `load` gives, clamped to `0 .. most`.

    `load` is of an integer tensor.  The index of the load that has the lookup may use `name` like
    an axis.
    """

    name: str
    load: "Load"
    most: int

    def __str__(self) -> str:
        return f"{self.name} = {self.load} in 0..{self.most}"


@dataclass(frozen=True)
class Load:
    """An element of a tensor.

    The element of dimension d is `index[d] // divisors[d]`.  The load is real where every
    `index[d]` is divisible by its divisor and the quotient lies inside the dimension, and where the
    load `beside` is real, if there is one; elsewhere it has the value `outside`.

    A load whose `dtype` is wider than the tensor's converts.  With `along` it is as many neighbours
    along that dimension as `dtype`, one of GROUPS, is made of, from the one at the index on; those
    that lie outside are 0.

    Where data says which element it is, as in a gather, its index has the names of `lookups` among
    its axes.
    """

    tensor: str
    index: tuple[Affine, ...]
    dtype: str
    divisors: tuple[int, ...] = ()
    outside: float | int = 0
    beside: "Load | None" = None
    along: int | None = None
    lookups: tuple[Lookup, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Loads are looked up for each element that a kernel has written out."""
        return hash((self.tensor, self.index, self.dtype, self.along))

    @cached_property
    def terms(self) -> tuple[tuple[Terms, ...], tuple[int, ...]]:
        """Terms and divisors of the index: what loads that differ in constants have in common."""
        return tuple(e.terms for e in self.index), self.divisors

    @cached_property
    def whole(self) -> "Load":
        """The load with the index of the load beside it behind its own: together they say where it
        is real.
        """
        if self.beside is None:
            return self
        both = self, self.beside
        divisors = tuple(x.divisor(d) for x in both for d in range(len(x.index)))
        index = (*self.index, *self.beside.index)
        return replace(self, index=index, divisors=divisors, beside=None)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes on which it depends which element is loaded, by way of lookups too."""
        looked_up = {x.name: x.load.axes for x in self.lookups}
        names = (b for e in self.index for a, _ in e.terms for b in looked_up.get(a, (a,)))
        return tuple(dict.fromkeys(names))

    def substitute(self, axes: Mapping[str, Affine]) -> "Load":
        """Puts an affine in the place of each named axis, in the loads that it depends on too."""
        index = tuple(e.substitute(axes) for e in self.index)
        beside = self.beside and self.beside.substitute(axes)
        lookups = tuple(replace(x, load=x.load.substitute(axes)) for x in self.lookups)
        return replace(self, index=index, beside=beside, lookups=lookups)

    def with_pointers(self, change: Mapping["Load", "Load"]) -> "Load":
        """The load with other loads in the place of those that its lookups name."""
        if not self.lookups:
            return self
        lookups = tuple(
            replace(x, load=change.get(x.load) or x.load.with_pointers(change))
            for x in self.lookups
        )
        return replace(self, lookups=lookups)

    def is_looked_up(self, dimension: int) -> bool:
        """Whether data decides where along a dimension the element lies."""
        return any(x.name in self.index[dimension].coefficients for x in self.lookups)

    def divisor(self, dimension: int) -> int:
        return self.divisors[dimension] if self.divisors else 1

    def __str__(self) -> str:
        parts = [
            str(e) if self.divisor(d) == 1 else f"({e})/{self.divisor(d)}"
            for d, e in enumerate(self.index)
        ]
        if self.along is not None:
            parts[self.along] += f" .. +{GROUPS[self.dtype][1]}"
        return f"{self.tensor}[{', '.join(parts)}]"


@dataclass(frozen=True)
class Apply:
    """An elementwise operation of the table in `operations.py`, by its name there.

    `select(p, a, b)`, `clamp(low, x, high)`; `convert` to `dtype`; `compare_*` have dtype i1.
    `dot(a, b)` is the sum of the products of two groups,
    `schedules/algorithms/dot_instructions/rewriting.py` makes it.
    """

    op: str
    args: tuple["Expr", ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Given:
    """A value that is given to the evaluation of the expression, known by its position.

    What a monoid merges is written so; no stage has one among its values.
    """

    position: int
    dtype: str

    def __str__(self) -> str:
        return f"${self.position}"


Expr = Const | Load | Apply | Given


def loads(expr: Expr) -> Iterator[Load]:
    """All loads of an expression, in order of reading, repeated as often as they stand there.

    A lookup's load is read before the load that has the lookup.
    """
    if isinstance(expr, Load):
        for x in expr.lookups:
            yield from loads(x.load)
        yield expr
    elif isinstance(expr, Apply):
        for arg in expr.args:
            yield from loads(arg)


def distinct_loads(values: Iterable[Expr]) -> tuple[Load, ...]:
    """The loads of several expressions, in order of reading; what they share is walked once."""
    seen, found = set[int](), dict[Load, None]()

    def walk(expr: Expr) -> None:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        if isinstance(expr, Load):
            for x in expr.lookups:
                walk(x.load)
            found[expr] = None
        elif isinstance(expr, Apply):
            for arg in expr.args:
                walk(arg)

    for value in values:
        walk(value)
    return tuple(found)


def map_loads(expr: Expr, change: Mapping[Load, Expr]) -> Expr:
    """Puts an expression in the place of each named load.

    What the expression shares, one object in several places, the new one shares as well.
    """
    return map_all_loads((expr,), change)[0]


def map_all_loads(values: Iterable[Expr], change: Mapping[Load, Expr]) -> tuple[Expr, ...]:
    """`map_loads` of several expressions that may share parts."""
    known: dict[int, Expr] = {}
    return tuple(_mapped(v, change, known) for v in values)


def _mapped(expr: Expr, change: Mapping[Load, Expr], known: dict[int, Expr]) -> Expr:
    if isinstance(expr, Load):
        found = change.get(expr)
        if found is not None:
            return found
        return expr.with_pointers(_pointers(change)) if expr.lookups else expr
    if not isinstance(expr, Apply):
        return expr
    if id(expr) not in known:
        args = tuple(_mapped(a, change, known) for a in expr.args)
        known[id(expr)] = Apply(expr.op, args, expr.dtype)
    return known[id(expr)]


def _pointers(change: Mapping[Load, Expr]) -> dict[Load, Load]:
    """The changes from a load to a load, which lookups can have."""
    return {x: y for x, y in change.items() if isinstance(y, Load)}


def distinct_operations(values: Iterable[Expr]) -> int:
    """Arithmetic operations that one evaluation takes; conversions and loads are free."""
    return sum(map(operation_count, operations(values)))


def only_moves(expr: Expr, guards: Container[str]) -> bool:
    """Whether a value is one of its loads or constants, as loads of guards choose."""
    if not isinstance(expr, Apply):
        return True
    if expr.op != "select":
        return False
    here, *values = expr.args
    chosen = isinstance(here, Load) and here.tensor in guards
    return chosen and all(only_moves(v, guards) for v in values)


def operations(values: Iterable[Expr]) -> tuple[Apply, ...]:
    """Arithmetic operations, without conversions, of one evaluation.

    What is shared, one object in several places, is computed once.
    """
    seen, waiting = dict[int, Apply](), list(values)
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, Apply) and id(expr) not in seen:
            seen[id(expr)] = expr
            waiting.extend(expr.args)
    return tuple(x for x in seen.values() if x.op != "convert")


def operation_count(operation: Apply) -> int:
    """The operations in one: a dot has several, and what makes groups of elements has none."""
    if operation.op == "dot":
        return 2 * GROUPS[operation.args[0].dtype][1] - 1
    return int(operation.dtype not in GROUPS)

"""The values of a stage as instructions, whatever it reads and wherever it stores."""

from collections.abc import Sequence

from hlotune.codegen.llvm.idioms.dot_instructions import dot
from hlotune.codegen.llvm.idioms.risen_tangents import risen, risen_tangent
from hlotune.codegen.llvm.idioms.rotations import rotated, rotation
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.quotients import divided
from hlotune.codegen.llvm.math.values import Value, convert, literal, splat, suffix
from hlotune.codegen.llvm.merging import merged, prefixes
from hlotune.codegen.llvm.templates import Draft, Step
from hlotune.schedules.dtypes import GROUPS, is_float
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Apply, Const, Expr, Given, Load
from hlotune.schedules.ir.monoids import Monoid, Values

OUTSIDE = 0
"""Stands in the place of a load's lanes where the load lies outside of its tensor for certain."""
INSIDE = -1
"""The same of a guard that is inside for certain."""


def steps_of(
    stage: Stage, lanes: int, dtypes: tuple[str, ...], loaded: tuple[int, ...],
    features: tuple[str, ...] = (), zeros_alike: bool = False, along: bool = False,
    loses_nan: bool = False, at_most_one: bool = False,
) -> tuple[Step, ...]:  # fmt: skip
    """How a statement of a stage is written, on so many lanes.

    `dtypes` are those of its results, `loaded` the lanes of its loads, or OUTSIDE; `features` are
    the target's.  Where `zeros_alike`, the sign of a result that is zero does not matter; `along`
    says whether the lanes are points of a scan, in order.  Where it `loses_nan`, extremes pass over
    what is no number.  Where its exponentials are `at_most_one`, they are of zero or less.
    """
    key = lanes, dtypes, loaded, features, zeros_alike, along, loses_nan, at_most_one
    known = stage.derived.get(key)
    if not isinstance(known, tuple):
        statement = _Statement(stage, lanes, loaded, Draft(features))
        statement.f.zeros_alike, statement.along = zeros_alike, along
        statement.f.loses_nan, statement.f.at_most_one = loses_nan, at_most_one
        known = stage.derived[key] = statement.steps(dtypes)
    return known


class _Statement:
    """Writes the values of a statement to a draft."""

    def __init__(self, stage: Stage, lanes: int, loaded: Sequence[int], f: Draft) -> None:
        self.stage, self.lanes, self.loaded, self.f = stage, lanes, loaded, f
        self.along = False
        self.numbers = {x: k for k, x in enumerate(stage.loads)}
        self.shared: dict[int, Value] = {}
        """Values by the identity of their expression."""
        self.merged: list[Values] = []
        """Expressions made here, which live as long as what is known by their identity."""

    def steps(self, dtypes: Sequence[str]) -> tuple[Step, ...]:
        if self.stage.combine is None:
            for k, expr in enumerate(self.stage.values):
                self.f.put(k, splat(self.f, self._value(expr), self.lanes))
        else:
            write = self._merge_prefixes if self.along else self._merge
            for group in self.stage.groups:
                write(self.stage.combine, group, dtypes)
        return tuple(self.f.steps)

    def _merge(self, monoid: Monoid, group: range, dtypes: Sequence[str]) -> None:
        """What results have come to so far, with the values that come to them here."""
        old = tuple(Given(k, dtypes[k]) for k in group)
        whole = monoid.merge(old, tuple(self.stage.values[k] for k in group))
        self.merged.append(whole)
        found = [splat(self.f, self._value(expr), self.lanes) for expr in whole]
        for k, value in zip(group, found, strict=True):
            self.f.put(k, value)

    def _merge_prefixes(self, monoid: Monoid, group: range, dtypes: Sequence[str]) -> None:
        """The same of a scan along the lanes: each has what came before it in the vector too."""
        values = [splat(self.f, self._value(self.stage.values[k]), self.lanes) for k in group]
        found = prefixes(self.f, monoid, values)
        old = [Value(self.f.old(k), dtypes[k], self.lanes) for k in group]
        for k, value in zip(group, merged(self.f, monoid, old, found), strict=True):
            self.f.put(k, value)

    def _added(self, expr: Apply) -> Value | None:
        """A product that is added to what there is so far, in one instruction."""
        if expr.op != "add" or not isinstance(expr.args[0], Given):
            return None
        product = expr.args[1]
        if isinstance(product, Apply) and product.op == "multiply" and is_float(expr.dtype):
            return self._multiplied_and_added(product, self._value(expr.args[0]))
        if isinstance(product, Apply) and product.op == "dot":
            return self._dotted(product, self._value(expr.args[0]))
        return None

    def _multiplied_and_added(self, expr: Apply, old: Value) -> Value:
        a, b = map(self._value, expr.args)
        # padding and inserted zeros add nothing: where that is known while emitting, no code
        if a.known == 0 or b.known == 0:
            return old
        a, b = splat(self.f, a, self.lanes), splat(self.f, b, self.lanes)
        kind = suffix("double" if old.dtype == "f64" else "float", self.lanes)
        arguments = ((a.type, a.name), (b.type, b.name), (old.type, old.name))
        name = self.f.intrinsic(f"llvm.fmuladd.{kind}", old.type, *arguments)
        return Value(name, old.dtype, self.lanes)

    def _dotted(self, expr: Apply, old: Value) -> Value:
        a, b = map(self._value, expr.args)
        if a.known == 0 or b.known == 0:
            return old
        return dot(self.f, splat(self.f, a, self.lanes), splat(self.f, b, self.lanes), old)

    def _value(self, expr: Expr) -> Value:
        value = self.shared.get(id(expr))
        if value is None:
            value = self.shared[id(expr)] = self._fresh(expr)
        return value

    def _fresh(self, expr: Expr) -> Value:
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype, 1)
        if isinstance(expr, Load):
            return self._loaded(expr)
        if isinstance(expr, Given):
            return Value(self.f.old(expr.position), expr.dtype, self.lanes)
        added = self._added(expr)
        if added is not None:
            return added
        if (turned := rotation(expr)) is not None:
            whole, places = turned
            return rotated(self.f, splat(self.f, self._value(whole), self.lanes), places)
        if (u := risen_tangent(self.f, expr, self.stage.values)) is not None:
            return risen(self.f, self._value(u))
        if expr.op == "select" and (chosen := self._chosen(expr)) is not None:
            return self._value(chosen)
        args = [self._value(a) for a in expr.args]
        if expr.op == "divide" and is_float(expr.dtype) and args[1].lanes < args[0].lanes:
            return divided(self.f, args[0], args[1], expr.dtype)
        if expr.op == "convert":
            known_zero = args[0].known == 0
            return literal(0, expr.dtype, 1) if known_zero else convert(self.f, args[0], expr.dtype)
        # what a dot takes is spread over the lanes as it is loaded
        wide = self.lanes if expr.dtype in GROUPS else max([a.lanes for a in args])
        args = [a if a.lanes == wide else splat(self.f, a, wide) for a in args]
        return apply(self.f, expr.op, tuple(args), expr.dtype)

    def _chosen(self, expr: Apply) -> Expr | None:
        """What is selected, where that is known while emitting: the other one takes no code."""
        condition = self._value(expr.args[0]).known
        return None if condition is None else expr.args[1 if condition else 2]

    def _loaded(self, x: Load) -> Value:
        number = self.numbers[x]
        lanes = self.loaded[number]
        if lanes == INSIDE:
            return literal(1, x.dtype, 1)
        if lanes == OUTSIDE:
            return literal(x.outside, x.dtype, 1)
        return Value(self.f.read(number), x.dtype, lanes)

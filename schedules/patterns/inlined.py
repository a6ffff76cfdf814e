"""A compute's stages with all that is computed point by point written into those that need it.

What is left reduces, or stores results; its loads are of arguments, of reductions, and of PLACES.
"""

from dataclasses import replace
from typing import Any

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.number_tables import NumberTables, Table

PLACES = "places"
"""The name of a tensor that no compute has: its element i is the number i."""
LEFT_ALONE = "the kernel stays with the default compiler"


def inlined(compute: Compute) -> tuple[Stage, ...]:
    """The stages that reduce or store results, in order.

    Equal expressions are one object, within a stage and across stages.

    Raises UnsupportedKernel where a stage is more than a map or a reduction, or reads another one
    at places that are no affine function of its own axes.
    """
    results = {t.name for t in compute.results}
    inlining = _Inlining(compute)
    kept = [s for s in compute.stages if s.combine or results & s.stored]
    return tuple(inlining.stage(s) for s in kept)


class Interned:
    """Expressions of which equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Expr] = {}

    def of(self, e: Expr) -> Expr:
        """The one object that is equal to an expression whose parts are interned already."""
        match e:
            case Apply():
                key: tuple[Any, ...] = (e.op, e.dtype, *map(id, e.args))
            case Const():
                key = ("constant", repr(e.value), e.dtype)
            case _:
                key = ("load", e)
        return self._known.setdefault(key, e)


class _Inlining:
    def __init__(self, compute: Compute) -> None:
        self.compute, self.tables, self.interned = compute, NumberTables(compute), Interned()
        self.makers = {x.tensor: (s, k) for s in compute.stages for k, x in enumerate(s.stores)}
        self.alive: list[Expr] = []
        """Expressions that are known by their identity."""

    def stage(self, s: Stage) -> Stage:
        if s.scans or s.onto or s.begins or s.digits or any(x.lookups for x in s.stores):
            raise UnsupportedKernel(
                f"expected maps and reductions, got {s.name}, which is a scan, an update, or "
                f"splits its axes: {LEFT_ALONE}"
            )
        known = dict[int, Expr]()
        return replace(s, values=tuple(self._expr(v, s, known) for v in s.values), ends=())

    def _expr(self, e: Expr, s: Stage, known: dict[int, Expr]) -> Expr:
        if id(e) not in known:
            self.alive.append(e)
            match e:
                case Load():
                    made = self._load(e, s, known)
                case Apply():
                    made = _plain(
                        Apply(e.op, tuple(self._expr(a, s, known) for a in e.args), e.dtype)
                    )
                case _:
                    made = e
            known[id(e)] = self.interned.of(made)
        return known[id(e)]

    def _load(self, x: Load, s: Stage, known: dict[int, Expr]) -> Expr:
        if x.lookups or x.along is not None or x.beside is not None:
            raise UnsupportedKernel(
                f"expected loads at places that are known beforehand, got {x} in {s.name}: "
                f"{LEFT_ALONE}"
            )
        maker, position = self.makers.get(x.tensor, (None, 0))
        if maker is None:
            return x
        self._require_inside(x, s)
        if maker.combine:
            return x
        if (table := self.tables.table(x.tensor)) is not None:
            return Load(PLACES, (_line(table, x),), x.dtype)
        axes = [a.name for a in maker.parallel]
        if maker.stores[position].index != tuple(map(Affine.axis, axes)):
            raise UnsupportedKernel(
                f"expected {x.tensor} to be stored along whole axes, got {maker.name}: {LEFT_ALONE}"
            )
        places = dict(zip(axes, x.index, strict=True))
        return self._expr(_placed(maker.values[position], places), s, known)

    def _require_inside(self, x: Load, s: Stage) -> None:
        ranges = {a.name: (0, a.extent - 1) for a in s.axes}
        shape = self.compute.tensor(x.tensor).shape
        spans = [e.bounds(ranges) for e in x.index]
        inside = all(low >= 0 and high < n for (low, high), n in zip(spans, shape, strict=True))
        if not inside or any(d != 1 for d in x.divisors):
            raise UnsupportedKernel(
                f"expected {s.name} to read what other stages make without borders, got {x}: "
                f"{LEFT_ALONE}"
            )


def _plain(e: Apply) -> Expr:
    """Without a choice between true and false, which is its condition."""
    if e.op == "select" and e.dtype == "i1":
        yes, no = e.args[1:]
        if isinstance(yes, Const) and isinstance(no, Const) and yes.value and not no.value:
            return e.args[0]
    return e


def _line(table: Table, x: Load) -> Affine:
    """What a load of a table of numbers gives, as an affine function of its index."""
    rank = len(x.index)
    origin = (0,) * rank
    first = table[origin]
    steps = [table.get((*origin[:d], 1, *origin[d + 1 :]), first) - first for d in range(rank)]
    if any(v != first + sum(map(int.__mul__, steps, at)) for at, v in table.items()):
        raise UnsupportedKernel(
            f"expected numbers that count up along axes, got others in {x.tensor}: {LEFT_ALONE}"
        )
    return Affine.weighted(zip(x.index, steps, strict=True)) + first


def _placed(e: Expr, places: dict[str, Affine]) -> Expr:
    """An expression with affines in the places of axes; what it shares, it shares as well."""
    known = dict[int, Expr]()

    def placed(e: Expr) -> Expr:
        if id(e) not in known:
            match e:
                case Load():
                    known[id(e)] = e.substitute(places)
                case Apply():
                    known[id(e)] = Apply(e.op, tuple(map(placed, e.args)), e.dtype)
                case _:
                    known[id(e)] = e
        return known[id(e)]

    return placed(e)

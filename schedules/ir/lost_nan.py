"""Which searches for the largest element may pass over what is no number.

To find NaN takes processors several instructions for each vector.  A softmax has it anyway: an
element that is no number is none in its own exponential either, and the sum over the row has that.
So whatever the largest of the other elements is, all results of the row are NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import MAX, MIN, SUM

STRICT = frozenset({
    "add", "subtract", "multiply", "divide", "negate", "maximum", "minimum", "exponential",
    "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "sqrt", "rsqrt",
})  # fmt: skip
"""Operations that give NaN where any operand is NaN."""
Axes = Mapping[str, str]
"""By axes of the search the axes of another stage."""
Layout = tuple[str | None, ...]
"""By dimension of a tensor the axis of the search that it goes along; None where along none."""


def may_pass_over_nan(compute: Compute, search: Stage) -> bool:
    """Whether all that depends on what a stage finds is NaN where one of its elements is.

    The stage takes the largest or least of single values.
    """
    name = search.stores[0].tensor
    tensor = compute.tensor(name)
    plain = search.combine in (MAX, MIN) and len(search.stores) == 1 and _is_plain(search)
    if not plain or tensor.role != "temporary" or not is_float(tensor.dtype):
        return False
    own = {a.name: a.name for a in search.parallel}
    known = _Known(search, {name: _layout(search.stores[0].index, own)}, {name})
    later = compute.stages[compute.stages.index(search) + 1 :]
    return all(known.holds(compute, stage) for stage in later)


def _is_plain(stage: Stage) -> bool:
    return not (stage.scans or stage.onto or stage.begins or stage.digits or stage.ends)


def _layout(index: tuple[Affine, ...], axes: Axes) -> Layout:
    """`axes` are by those of the search."""
    back = {own: axis for axis, own in axes.items()}
    return tuple(back.get(walked_axis(e) or "") for e in index)


def walked_axis(index: Affine) -> str | None:
    """The axis that an index walks one by one from 0 on."""
    alone = len(index.terms) == 1 and not index.constant and index.terms[0][1] == 1
    return index.terms[0][0] if alone else None


@dataclass
class _Known:
    """What is known of the tensors of stages up to one."""

    search: Stage
    layouts: dict[str, Layout]
    depends: set[str]
    """Tensors that depend on what was found."""
    rows: set[str] = field(default_factory=set)
    """Tensors that are NaN in all of a row of which one element is."""
    points: set[str] = field(default_factory=set)
    """Tensors that are NaN at each element that is."""

    def holds(self, compute: Compute, stage: Stage) -> bool:
        """Learns what a stage stores; whether no result has too little of the NaN."""
        for x, value in zip(stage.stores, stage.values, strict=True):
            axes = self._axes(compute, stage)
            kind = self._kind(value, axes) if axes is not None and _is_plain(stage) else ""
            if stage.reduce and axes is not None:
                kind = self._reduced(stage, kind, axes)
            if self.depends & set(stage.maps):
                self.depends.add(x.tensor)
                if compute.tensor(x.tensor).role == "result" and kind != "row":
                    return False
            if kind and axes is not None:
                self.layouts[x.tensor] = _layout(x.index, axes)
                (self.rows if kind == "row" else self.points).add(x.tensor)
        return True

    def _axes(self, compute: Compute, stage: Stage) -> dict[str, str] | None:
        """The axes of a stage by those of the search, as it reads what is known; None where it
        reads that along others, or beyond its end."""
        found = dict[str, str]()
        for load in (x for x in stage.loads if x.tensor in self.layouts):
            shape = compute.tensor(load.tensor).shape
            if not is_direct(load):
                return None
            for axis, e, n in zip(self.layouts[load.tensor], load.index, shape, strict=True):
                own = walked_axis(e)
                inside = not e.terms or (own is not None and stage.extents.get(own, n + 1) <= n)
                other = axis is not None and (own is None or found.setdefault(axis, own) != own)
                if other or not inside:
                    return None
        reduced = [a.name for a in self.search.reduce]
        if not set(reduced) & set(found):
            for value in stage.values:
                self._match_reduced(value, found)
        whole = all(self.search.extents[a] == stage.extents.get(own) for a, own in found.items())
        return found if whole and len(set(found.values())) == len(found) else None

    def _match_reduced(self, value: Expr, axes: dict[str, str]) -> bool:
        """Finds the reduced axes where a value has the search's own value in it."""
        trial = dict(axes)
        if alike(self.search.values[0], value, trial):
            axes.update(trial)
            return True
        return isinstance(value, Apply) and any(self._match_reduced(a, axes) for a in value.args)

    def _kind(self, value: Expr, axes: Axes) -> str:
        """`row`, `point`, or nothing: where a value is NaN for certain."""
        trial = dict(axes)
        if alike(self.search.values[0], value, trial) and trial == axes:
            return "point"
        if isinstance(value, Load):
            return "row" if value.tensor in self.rows else "point" * (value.tensor in self.points)
        if not isinstance(value, Apply) or not is_float(value.dtype):
            return ""
        kinds = [self._kind(a, axes) for a in value.args]
        if value.op in STRICT or (value.op == "convert" and is_float(value.args[0].dtype)):
            return max(kinds, key=("", "point", "row").index)
        return min(kinds[1:], key=("", "point", "row").index) if value.op == "select" else ""

    def _reduced(self, stage: Stage, kind: str, axes: Axes) -> str:
        """The same of a reduction of such values."""
        reduced = {a.name for a in stage.reduce}
        across = {axes.get(a.name) for a in self.search.reduce}
        along = {axes.get(a.name) for a in self.search.parallel}
        whole = stage.combine in (SUM, MAX, MIN) and not along & reduced
        if kind == "row" and whole:
            return "row"
        return "row" if kind == "point" and whole and across <= reduced else ""


def is_direct(load: Load) -> bool:
    """Whether an index alone says which element it is."""
    return not (load.lookups or load.divisors or load.beside) and load.along is None


def alike(value: Expr, other: Expr, axes: dict[str, str]) -> bool:
    """Whether two values are the same, one with other axes, which are added to those known."""
    if isinstance(value, Const):
        return value == other
    if isinstance(value, Load):
        return isinstance(other, Load) and _read_alike(value, other, axes)
    return (
        isinstance(value, Apply)
        and isinstance(other, Apply)
        and (value.op, value.dtype, len(value.args)) == (other.op, other.dtype, len(other.args))
        and all(alike(a, b, axes) for a, b in zip(value.args, other.args, strict=True))
    )


def _read_alike(value: Load, other: Load, axes: dict[str, str]) -> bool:
    same = (value.tensor, value.dtype, len(value.index)) == (
        other.tensor, other.dtype, len(other.index),
    )  # fmt: skip
    if not same or not is_direct(value) or not is_direct(other):
        return False
    for e, own in zip(value.index, other.index, strict=True):
        if e.terms or own.terms:
            axis, found = walked_axis(e), walked_axis(own)
            if axis is None or found is None or axes.setdefault(axis, found) != found:
                return False
        elif e != own:
            return False
    return True

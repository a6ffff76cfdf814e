"""Attention in one form, whatever order its axes stand in: named by their roles, batch axes first.

    scores[b, t, s] = sum over d of q * k          scores
    m[b, t] = max over s of scores[b, t, s]        the stages of the program's softmax
    e[b, t, s] = exp(scores[b, t, s] - m[b, t])
    l[b, t] = sum over s of e[b, t, s]
    p[b, t, s] = e[b, t, s] / l[b, t]
    acc[b, t, f] = sum over s of p * v             values
    y[b, t, f] = acc[b, t, f]                      out

`attention` keeps the operations of the program.  `attention(divide_last)` divides the results in
place of the weights: a row has fewer features than keys.

    acc[b, t, f] = sum over s of e * v;  y[b, t, f] = acc[b, t, f] / l[b, t]

What masks are made of is computed where it is used, in place of a table of all rows and keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load, map_all_loads
from hlotune.schedules.ir.split_read import split_read
from hlotune.schedules.patterns.attention import (
    FEATURE,
    KEY,
    OUT,
    ROW,
    SCORES,
    VALUES,
    Attention,
    attention,
)

NAME = "attention"
DIVIDE_LAST = "attention(divide_last)"
ACC = "acc"
"""The tensor of the second product's sums."""
MOST_INLINED = 8
"""Operations of a mask that is computed again wherever it is used."""


def named(algorithm: str) -> Callable[[Compute], Compute] | None:
    """The rewriting of this name, or None where it is none of these."""
    found = {NAME: rewritten, DIVIDE_LAST: divided_last}
    return found.get(algorithm)


def divided_last(compute: Compute) -> Compute:
    """Raises ScheduleError where weights are not divided by their row's sum, and no attention."""
    return _divided_last(rewritten(compute))


def rewritten(compute: Compute) -> Compute:
    """Raises ScheduleError for a compute that is no attention."""
    compute = split_read(compute)
    try:
        view = attention(compute)
    except UnsupportedKernel as error:
        raise ScheduleError(f"{NAME}: {error}") from error
    renamed = _Renamed(compute, view)
    stages = [renamed.stage(s) for s in (view.scores, *view.between, view.values)]
    out = renamed.stage(view.out) if view.out is not None else _copying(compute, stages[-1])
    if view.out is None:
        stages[-1] = _stored_apart(stages[-1])
    tensors = [renamed.tensor(t) for t in compute.tensors]
    if view.out is None:
        tensors.append(_sums(stages[-1]))
    whole = Compute(tuple(tensors), (*view.aside, *stages, out))
    return _with_rows(_without_masks(whole, view))


class _Renamed:
    """Stages with the names of roles for axes, and temporaries with dimensions in their order."""

    def __init__(self, compute: Compute, view: Attention) -> None:
        self.compute, self.view = compute, view
        self.orders: dict[str, tuple[int, ...]] = {}
        waiting = (view.scores, *view.between, view.values)
        for stage in waiting:
            for x in stage.stores:
                if compute.tensor(x.tensor).role == "temporary":
                    self.orders[x.tensor] = self._order(stage, x)

    def _order(self, stage: Stage, store: Store) -> tuple[int, ...]:
        roles = self.view.roles[stage.name]
        own = [rank(roles[e.terms[0][0]]) for e in store.index]
        return tuple(sorted(range(len(own)), key=own.__getitem__))

    def tensor(self, tensor: Tensor) -> Tensor:
        order = self.orders.get(tensor.name)
        if order is None:
            return tensor
        return replace(tensor, shape=tuple(tensor.shape[d] for d in order))

    def stage(self, stage: Stage) -> Stage:
        roles = self.view.roles[stage.name]
        axes = {own: Affine.axis(role) for own, role in roles.items()}
        parallel = sorted((Axis(roles[a.name], a.extent) for a in stage.parallel), key=_rank_of)
        names = {self.view.scores.name: SCORES, self.view.values.name: VALUES}
        if self.view.out is not None:
            names[self.view.out.name] = OUT
        moved = {x: self._load(x.substitute(axes)) for x in stage.loads}
        stores = tuple(
            Store(x.tensor, self._index(x.tensor, tuple(e.substitute(axes) for e in x.index)))
            for x in stage.stores
        )
        return replace(
            stage,
            name=names.get(stage.name, stage.name),
            parallel=tuple(parallel),
            reduce=tuple(Axis(roles[a.name], a.extent) for a in stage.reduce),
            stores=stores,
            values=map_all_loads(stage.values, moved),
            ends=tuple((roles[axis], end.substitute(axes)) for axis, end in stage.ends),
        )

    def _load(self, load: Load) -> Load:
        return replace(load, index=self._index(load.tensor, load.index))

    def _index(self, tensor: str, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        order = self.orders.get(tensor)
        return index if order is None else tuple(index[d] for d in order)


def rank(role: str) -> tuple[int, str]:
    """Where an axis stands: batch axes, groups, rows, keys, features."""
    return "bgtsdf".index(role[0]), role


def _rank_of(axis: Axis) -> tuple[int, str]:
    return rank(axis.name)


def _sums(values: Stage) -> Tensor:
    shape = tuple(a.extent for a in values.parallel)
    return Tensor(ACC, shape, values.values[0].dtype, "temporary")


def _stored_apart(values: Stage) -> Stage:
    """The second product with its sums in a tensor of their own, for a last stage to read."""
    index = tuple(Affine.axis(a.name) for a in values.parallel)
    return replace(values, stores=(Store(ACC, index),))


def _copying(compute: Compute, values: Stage) -> Stage:
    """The last stage behind a second product that stores the result itself."""
    index = tuple(Affine.axis(a.name) for a in values.parallel)
    sums = Load(ACC, index, values.values[0].dtype)
    return Stage(OUT, values.parallel, (), values.stores, (sums,))


def _with_rows(compute: Compute) -> Compute:
    """The compute with an axis of one row in all stages, and in what they hand over, where it has
    none.
    """
    scores = compute.stage(SCORES)
    if ROW in scores.extents:
        return compute
    first = [s.name for s in compute.stages].index(SCORES)
    inside = compute.stages[first:]
    places = {
        x.tensor: sum(rank(e.terms[0][0]) < rank(ROW) for e in x.index)
        for s in inside[:-1] for x in s.stores
    }  # fmt: skip

    def index(tensor: str, own: tuple[Affine, ...]) -> tuple[Affine, ...]:
        d = places.get(tensor)
        return own if d is None else (*own[:d], Affine.axis(ROW), *own[d:])

    def widened(s: Stage) -> Stage:
        moved = {x: replace(x, index=index(x.tensor, x.index)) for x in s.loads}
        return replace(
            s,
            parallel=tuple(sorted((*s.parallel, Axis(ROW, 1)), key=_rank_of)),
            stores=tuple(Store(x.tensor, index(x.tensor, x.index)) for x in s.stores),
            values=map_all_loads(s.values, moved),
        )

    def tensor(t: Tensor) -> Tensor:
        d = places.get(t.name)
        return t if d is None else replace(t, shape=(*t.shape[:d], 1, *t.shape[d:]))

    stages = (*compute.stages[:first], *map(widened, inside))
    return Compute(tuple(map(tensor, compute.tensors)), stages)


def _without_masks(compute: Compute, view: Attention) -> Compute:
    """The compute with tables over rows and keys computed where they are read, if that is cheap."""
    masks = {s.stores[0].tensor: s for s in view.aside if _is_mask(s)}
    stages, used = list[Stage](), dict[str, Stage]()
    for stage in compute.stages:
        found: dict[Load, Expr] = {}
        if stage not in view.aside:
            for x in stage.loads:
                if x.tensor in masks and {ROW, KEY} <= set(x.axes):
                    found[x] = _inlined(masks[x.tensor], x)
                    used[x.tensor] = masks[x.tensor]
        stages.append(replace(stage, values=map_all_loads(stage.values, found)))
    gone = [s for t, s in used.items() if not any(t in x.maps for x in stages)]
    kept = tuple(s for s in stages if s not in gone)
    unread = {x.tensor for s in gone for x in s.stores}
    return Compute(tuple(t for t in compute.tensors if t.name not in unread), kept)


def _is_mask(stage: Stage) -> bool:
    identity = tuple(Affine.axis(a.name) for a in stage.parallel)
    plain = stage.combine is None and len(stage.stores) == 1 and not stage.digits
    return (
        plain and stage.stores[0].index == identity and stage.flops <= MOST_INLINED * stage.points
    )


def _inlined(mask: Stage, load: Load) -> Expr:
    at: Mapping[str, Affine] = dict(zip((a.name for a in mask.parallel), load.index, strict=True))
    moved = {x: x.substitute(at) for x in mask.loads}
    return map_all_loads(mask.values, moved)[0]


def _divided_last(compute: Compute) -> Compute:
    values, out = compute.stage(VALUES), compute.stage(OUT)
    made = {x.tensor: s for s in compute.stages for x in s.stores}
    weights = next((x for x in values.loads if _is_quotient(made.get(x.tensor))), None)
    if weights is None:
        raise ScheduleError(
            f"{DIVIDE_LAST}: expected weights that are divided by what their row adds up to, got "
            f"none: use `{NAME}`"
        )
    maker = made[weights.tensor]
    quotient = maker.values[0]
    assert isinstance(quotient, Apply), "it divides"
    above, below = quotient.args
    if any(weights.tensor in s.maps for s in compute.stages if s is not values):
        raise ScheduleError(f"{DIVIDE_LAST}: expected weights that one product reads")
    stages = []
    for s in compute.stages:
        if s is maker:
            continue
        if s is values:
            s = replace(s, values=map_all_loads(s.values, {weights: above}))
        if s is out:
            sums = next(x for x in s.loads if x.tensor == values.stores[0].tensor)
            divided = Apply("divide", (sums, below), sums.dtype)
            s = replace(s, values=map_all_loads(s.values, {sums: divided}))
        stages.append(s)
    tensors = tuple(t for t in compute.tensors if t.name != weights.tensor)
    return Compute(tensors, tuple(stages))


def _is_quotient(stage: Stage | None) -> bool:
    """Whether a stage divides what it loads of a point by what it loads of the row."""
    if stage is None or len(stage.values) != 1:
        return False
    value = stage.values[0]
    if not isinstance(value, Apply) or value.op != "divide":
        return False
    above, below = value.args
    loads = isinstance(above, Load) and isinstance(below, Load) and above.dtype == value.dtype
    return loads and KEY not in below.axes and FEATURE not in below.axes  # type: ignore[union-attr]

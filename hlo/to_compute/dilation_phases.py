"""Phases of a transposed convolution: inserted zeros are left out instead of multiplied.

Where an operand is dilated by L, it has an element at every L-th position only.  For results of one
phase (their position modulo L) those are the taps of one residue modulo L, so with L = 2

    y[p] = sum over q of x[(p + q - 1) / 2] w[q]        real where 2 divides p + q - 1
    y[2 p + a] = sum over q of x[p + q] w[2 q + 1 - a]

has half of the multiply-adds along each such axis, and no divisors.  It is a change of axes, made
where it is affine: always for L = 2, for others where the residues of the phases go in one run or
in two of equal length.  Where L does not divide the results, some phases have one less than others:
all are computed as far as the longest, and what lies beyond the results is not stored.

A window of one element has no taps to split, and one phase of the results alone has products:

    y[p] = x[p / 2] w        real where 2 divides p

Its sums are those of the operand as it is; the last stage stores all phases, the others as if their
sums were zero.  Each phase is a store of its own: along an axis with which they would be too many,
inserted zeros stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hlotune.hlo.to_compute.prologues import is_zero_of_zeros
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Const, Expr, Load, map_loads
from hlotune.schedules.ir.monoids import SUM

MOST_STORES = 64
"""Stores of the stage that has all phases of windows of one element: those of dilations by eight
along two axes."""


@dataclass(frozen=True, slots=True)
class _Split:
    """`p = dilation * p + phase` and `q = dilation * q + residue`, in one stage."""

    stage: str
    p: Axis
    q: Axis
    dilation: int
    axes: tuple[Axis, ...]
    """They number the phase."""
    phase: Affine
    residue: Affine

    @property
    def places(self) -> dict[str, Affine]:
        return {
            self.p.name: Affine.axis(self.p.name, self.dilation) + self.phase,
            self.q.name: Affine.axis(self.q.name, self.dilation) + self.residue,
        }

    @property
    def positions(self) -> int:
        """The number of positions of the longest phase."""
        return -(-self.p.extent // self.dilation)

    @property
    def is_ragged(self) -> bool:
        """Whether other phases end before it."""
        return self.p.extent % self.dilation > 0

    @property
    def taps(self) -> int:
        """The number of taps of one phase; the last tap may lie beyond the window."""
        return -(-self.q.extent // self.dilation)

    @property
    def beyond(self) -> range:
        """Places of such taps."""
        return range(self.q.extent, self.taps * self.dilation)


def phases(compute: Compute) -> Compute:
    """The compute with every dilation split into phases that can be."""
    while (split := next(_splits(compute), None)) is not None:
        compute = _applied(compute, split)
    while (alone := next(_alone(compute), None)) is not None:
        compute = _apart(compute, alone)
    return compute


@dataclass(frozen=True, slots=True)
class _Alone:
    """`p = dilation * p + phase`, in a stage whose sums are those of one phase of `p` alone."""

    stage: str
    p: Axis
    dilation: int
    real: int
    """The phase that has products."""

    def places(self, phase: int) -> dict[str, Affine]:
        return {self.p.name: Affine.axis(self.p.name, self.dilation) + phase}

    @property
    def inner(self) -> Axis:
        return Axis(self.p.name, -(-self.p.extent // self.dilation))


def _alone(compute: Compute) -> Iterator[_Alone]:
    """Dilations along which the window has one element."""
    for core in (s for s in compute.stages if s.combine is SUM):
        for x in core.loads:
            for d, index in enumerate(x.index):
                found = _one_phase(core, index, x.divisor(d)) if x.divisor(d) > 1 else None
                if found is not None and _is_stored_at_once(compute, core, found):
                    yield found


def _one_phase(core: Stage, index: Affine, dilation: int) -> _Alone | None:
    """The phase of the one axis of a dilated index that has products."""
    odd = {a for a, c in index.terms if c % dilation}
    ps = [a for a in core.parallel if a.name in odd]
    if len(ps) != 1 or len(odd) != 1:
        return None
    along = index.coefficients[ps[0].name]
    real = [a for a in range(dilation) if (along * a + index.constant) % dilation == 0]
    return _Alone(core.name, ps[0], dilation, real[0]) if len(real) == 1 else None


def _is_stored_at_once(compute: Compute, core: Stage, found: _Alone) -> bool:
    """Whether one stage reads the sums, point by point, and stores results of the kernel, all
    phases by not too many stores."""
    sums = core.stores[0].tensor
    users = [s for s in compute.stages if any(x.tensor == sums for x in s.loads)]
    if len(users) != 1 or users[0].combine or users[0].parallel != core.parallel:
        return False
    own = tuple(Affine.axis(a.name) for a in core.parallel)
    few = len(users[0].stores) * found.dilation <= MOST_STORES
    direct = all(x.index == own for x in users[0].loads if x.tensor == sums)
    stored = (compute.tensor(x.tensor) for x in users[0].stores)
    along = all(
        found.p.name in {a for e in x.index for a in e.coefficients} for x in users[0].stores
    )
    return few and direct and along and all(t.role == "result" for t in stored)


def _apart(compute: Compute, found: _Alone) -> Compute:
    """The stages over the places of one phase; the last one stores those of all phases."""
    core = compute.stage(found.stage)
    sums = core.stores[0].tensor
    parallel = tuple(found.inner if a == found.p else a for a in core.parallel)
    stages = []
    for s in compute.stages:
        if s is core:
            s = _moved(s, found.places(found.real), sums, parallel)
        elif any(x.tensor == sums for x in s.loads):
            each = [_phase(s, found, a, sums, parallel) for a in range(found.dilation)]
            stores = tuple(x for part in each for x in part.stores)
            s = replace(
                each[0], stores=stores, values=tuple(v for part in each for v in part.values)
            )
        stages.append(s)
    shape = tuple(a.extent for a in parallel)
    tensors = tuple(replace(t, shape=shape) if t.name == sums else t for t in compute.tensors)
    return Compute(tensors, tuple(stages))


def _phase(s: Stage, found: _Alone, phase: int, sums: str, parallel: tuple[Axis, ...]) -> Stage:
    """What the last stage stores of one phase: without products the sums are zero."""
    moved = _moved(s, found.places(phase), sums, parallel)
    if phase == found.real:
        return moved
    nothing: dict[Load, Expr] = {x: Const(0, x.dtype) for x in moved.loads if x.tensor == sums}
    kept: dict[Load, Expr] = {x: x for x in moved.loads if x.tensor != sums}
    return replace(moved, values=tuple(map_loads(v, {**kept, **nothing}) for v in moved.values))


def _splits(compute: Compute) -> Iterator[_Split]:
    for core in (s for s in compute.stages if s.combine is SUM):
        for x in core.loads:
            for d, index in enumerate(x.index):
                split = _split(core, index, x.divisor(d)) if x.divisor(d) > 1 else None
                if split is not None and _is_possible(compute, core, split):
                    yield split


def _is_possible(compute: Compute, core: Stage, split: _Split) -> bool:
    """Whether taps beyond the window can be left out, and results beyond the last one."""
    sums = core.stores[0].tensor
    users = (s for s in compute.stages if any(x.tensor == sums for x in s.loads))
    stored = (compute.tensor(x.tensor) for s in users for x in s.stores)
    ends = not split.is_ragged or all(t.role == "result" for t in stored)
    return ends and (not split.beyond or _end(compute, core, split) is not None)


def _split(core: Stage, index: Affine, dilation: int) -> _Split | None:
    """How a dilated index is split, where one axis of each kind decides what is real."""
    odd = {a for a, c in index.terms if c % dilation}
    ps = [a for a in core.parallel if a.name in odd]
    qs = [a for a in core.reduce if a.name in odd]
    if len(ps) != 1 or len(qs) != 1:
        return None
    p, q = ps[0], qs[0]
    residues = _residues(index, p.name, q.name, dilation)
    for inner in (n for n in range(dilation, 0, -1) if dilation % n == 0):
        axes = Axis(f"{p.name}.a", dilation // inner), Axis(f"{p.name}.b", inner)
        residue = _affine(residues, axes) if residues else None
        if residue is not None:
            phase = Affine.of({axes[0].name: inner * (axes[0].extent > 1), axes[1].name: inner > 1})
            used = tuple(a for a in axes if a.extent > 1)
            return _Split(core.name, p, q, dilation, used, phase, residue)
    return None


def _residues(index: Affine, p: str, q: str, dilation: int) -> list[int] | None:
    """For each phase of `p` the residue of `q` whose taps are real; None where some have none."""
    along, across = index.coefficients[p], index.coefficients[q]
    found = []
    for phase in range(dilation):
        rest = along * phase + index.constant
        real = [r for r in range(dilation) if (rest + across * r) % dilation == 0]
        if len(real) != 1:
            return None
        found += real
    return found


def _affine(values: list[int], axes: tuple[Axis, Axis]) -> Affine | None:
    """Numbers in row-major order as an affine of two axes, or None where they are not."""
    (outer, many), (inner, run) = ((a.name, a.extent) for a in axes)
    terms = {
        outer: values[run] - values[0] if many > 1 else 0,
        inner: values[1] - values[0] if run > 1 else 0,
    }
    found = Affine.of(terms, values[0])
    same = (found.value({outer: k // run, inner: k % run}) == v for k, v in enumerate(values))
    return found if all(same) else None


def _end(compute: Compute, core: Stage, split: _Split) -> Load | None:
    """The load that ends with the window, where the stage's values are 0 if all loads are.

    Beyond it all loads can then be left out: a zero alone would not do, for it leaves nothing of
    a number, but is undefined times one that is infinite.
    """
    if not all(is_zero_of_zeros(v) for v in core.values):
        return None
    for x in core.loads:
        shape = compute.tensor(x.tensor).shape
        for d, index in enumerate(x.index):
            alone = [a for a, _ in index.terms] == [split.q.name] and x.divisor(d) == 1
            at = (index.value({split.q.name: q}) for q in split.beyond if alone)
            if alone and all(not 0 <= place < shape[d] for place in at):
                return x if all(y.beside in (None, x) for y in core.loads) else None
    return None


def _applied(compute: Compute, split: _Split) -> Compute:
    """The stages over the new axes, phases outermost: loops over them stay outside."""
    core = compute.stage(split.stage)
    inner = Axis(split.p.name, split.positions)
    parallel = (*split.axes, *(inner if a == split.p else a for a in core.parallel))
    sums = core.stores[0].tensor
    end = _end(compute, core, split) if split.beyond else None
    moved = []
    for s in compute.stages:
        if s is core:
            reduce = (Axis(a.name, split.taps) if a == split.q else a for a in s.reduce)
            s = replace(_moved(s, split.places, sums, parallel, end), reduce=tuple(reduce))
        elif any(x.tensor == sums for x in s.loads):
            s = _moved(s, split.places, sums, parallel)
        moved.append(s)
    shape = tuple(a.extent for a in parallel)
    tensors = tuple(replace(t, shape=shape) if t.name == sums else t for t in compute.tensors)
    return Compute(tensors, tuple(moved))


def _moved(
    s: Stage, places: Mapping[str, Affine], sums: str, parallel: tuple[Axis, ...],
    end: Load | None = None,
) -> Stage:  # fmt: skip
    """A stage over other parallel axes; the sums are an array over these.

    All loads are real only where `end` is, if it is given.
    """
    own = tuple(Affine.axis(a.name) for a in parallel)

    def index(tensor: str, old: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return own if tensor == sums else tuple(e.substitute(places) for e in old)

    stores = tuple(Store(x.tensor, index(x.tensor, x.index)) for x in s.stores)

    def load(x: Load) -> Load:
        beside = end if end and x != end else x.beside
        there = replace(x, index=index(x.tensor, x.index), beside=beside and load(beside))
        return _divided(there)

    change = {x: load(x) for x in s.loads}
    values = tuple(map_loads(v, change) for v in s.values)
    return replace(s, parallel=parallel, stores=stores, values=values)


def _divided(x: Load) -> Load:
    """The load without divisors that divide every term of their index."""
    index, divisors = list(x.index), [x.divisor(d) for d in range(len(x.index))]
    for d, (e, divisor) in enumerate(zip(index, divisors, strict=True)):
        if e.constant % divisor == 0 and all(c % divisor == 0 for _, c in e.terms):
            index[d] = Affine.of({a: c // divisor for a, c in e.terms}, e.constant // divisor)
            divisors[d] = 1
    kept = tuple(divisors) if any(n > 1 for n in divisors) else ()
    return replace(x, index=tuple(index), divisors=kept)

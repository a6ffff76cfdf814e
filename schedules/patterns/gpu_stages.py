"""Computes of independent rows: maps, reductions along a row, and sequences of these.

A *row* is a point of the axes that all stages have in common.  A stage reduces or stores along the
other axes, its *inner* ones.  A softmax has one inner axis; in a sum over the rows of a matrix, a
column of the matrix is a row here; in a pooling, each window is one.  Later stages read the
reductions of earlier ones, for each row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load, distinct_loads
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.ir.monoids import MAX, MIN, SUM, Monoid
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuKernel
from hlotune.schedules.patterns.gpu_operations import require_known
from hlotune.schedules.patterns.inlined import LEFT_ALONE, PLACES, Interned, inlined
from hlotune.schedules.patterns.rows import has_matrix_product

MONOIDS = (SUM, MAX, MIN)
ROW, INNER = "r", "c"
"""Axes are called `r0`, `r1`, ... and `c0_0`, `c0_1`, ... for the first tuple of inner extents."""


@dataclass(frozen=True, slots=True, eq=False)
class RowStage:
    """One stage, over `inner` axes of each row."""

    inner: tuple[Axis, ...]
    values: tuple[Expr, ...]
    stores: tuple[Store, ...]
    combine: Monoid | None
    """The operation that reduces a row along all inner axes; None for a map."""

    @property
    def points(self) -> int:
        """The number of points of one row: the product of the extents of the inner axes."""
        return prod(a.extent for a in self.inner)


@dataclass(frozen=True, eq=False)
class GpuStages:
    """A kernel made of stages over the same rows; two such kernels are equal only if identical."""

    rows: tuple[Axis, ...]
    stages: tuple[RowStage, ...]
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    element: str
    """The element type of the largest tensor, or f32 where products on GPUs lack that type."""
    flops: float

    @property
    def bytes(self) -> float:
        return float(sum(t.bytes for t in (*self.arguments, *self.results)))

    @property
    def count(self) -> int:
        """The number of rows."""
        return prod(a.extent for a in self.rows)

    @property
    def width(self) -> int:
        """The largest number of inner points that a stage has."""
        return max(s.points for s in self.stages)

    @property
    def reduces(self) -> bool:
        return any(s.combine for s in self.stages)


AnyGpuKernel = GpuKernel | GpuStages
"""Any kernel that has schedules for GPUs."""


def gpu_stages(compute: Compute) -> GpuStages:
    """The stages of a compute over its rows.

    Raises UnsupportedKernel where it has other stages than maps and reductions along rows, types or
    operations that such kernels do not have, or no rows.
    """
    if has_matrix_product(compute):
        raise UnsupportedKernel(
            f"expected reductions of rows, got a product of two operands: {LEFT_ALONE}"
        )
    stages = inlined(compute)
    _require_known(compute, stages)
    rows = _rows(stages)
    renamed = _Renamed(stages, rows)
    arguments = _read(compute, stages)
    largest = max((*arguments, *compute.results), key=lambda t: t.bytes).dtype
    return GpuStages(
        rows=tuple(Axis(f"{ROW}{n}", extent) for n, (extent, _) in enumerate(rows)),
        stages=tuple(renamed.stage(k) for k in range(len(stages))),
        arguments=arguments,
        results=compute.results,
        element=largest if largest in ELEMENT_BYTES else "f32",
        flops=float(flops_of(compute)),
    )


def _read(compute: Compute, stages: Sequence[Stage]) -> tuple[Tensor, ...]:
    """The arguments that some stage reads."""
    read = {x.tensor for s in stages for x in s.loads}
    return tuple(t for t in compute.arguments if t.name in read)


def _require_known(compute: Compute, stages: Sequence[Stage]) -> None:
    require_known((*compute.arguments, *compute.results), [v for s in stages for v in s.values])
    for s in stages:
        if s.combine and s.combine not in MONOIDS:
            raise UnsupportedKernel(
                f"expected reductions by {', '.join(map(str, MONOIDS))}, got {s.combine}: "
                f"{LEFT_ALONE}"
            )


Class = tuple[int, tuple[str, ...]]
"""A row axis: its extent, and its name in each stage."""


def _rows(stages: Sequence[Stage]) -> list[Class]:
    """The axes that all stages have in common, in the order of the last stage.

    Where all stages are maps over exactly these axes, the last axis is left out.
    """
    made = {x.tensor for s in stages if s.combine for x in s.stores}
    found = _shared(stages, made)
    if not found:  # stages that read nothing of one another may read the same arguments
        found = _shared(stages, {x.tensor for s in stages for x in s.loads} - {PLACES})
    if not found:
        raise UnsupportedKernel(
            f"expected rows that do not depend on one another, got none: {LEFT_ALONE}"
        )
    maps = all(len(s.axes) == len(found) and not s.combine for s in stages)
    # Blocks of maps have two dimensions: the last axis is an inner one.
    return found[:-1] if maps and len(found) > 1 else found


def _shared(stages: Sequence[Stage], through: set[str]) -> list[Class]:
    """The axes that all stages share, judged by how they index the tensors named in `through`."""
    classes = _Classes()
    for k, s in enumerate(stages):
        accesses = [(x.tensor, x.index) for x in s.stores]
        accesses += [(x.tensor, x.index) for x in s.loads]
        for tensor, index in accesses:
            for d, place in enumerate(index if tensor in through else ()):
                if len(place.terms) == 1 and place == Affine.axis(place.terms[0][0]):
                    classes.join((tensor, d), (k, place.terms[0][0]))
    if len(stages) == 1:
        return [(a.extent, (a.name,)) for a in stages[0].parallel]
    found = list[Class]()
    for a in stages[-1].parallel:
        root = classes.root((len(stages) - 1, a.name))
        own = [
            [b for b in s.axes if classes.root((k, b.name)) == root] for k, s in enumerate(stages)
        ]
        alone = all(len(x) == 1 and x[0].extent == a.extent for x in own)
        if alone and all(x[0] in s.parallel for x, s in zip(own, stages, strict=True)):
            found.append((a.extent, tuple(x[0].name for x in own)))
    return found


class _Classes:
    """Disjoint sets of things that are known to be the same (union-find)."""

    def __init__(self) -> None:
        self._above: dict[object, object] = {}

    def root(self, x: object) -> object:
        while (above := self._above.get(x, x)) != x:
            x = above
        return x

    def join(self, a: object, b: object) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self._above[a] = b


class _Renamed:
    """Stages with axes renamed to rows and inner axes; equal expressions become one object."""

    def __init__(self, stages: Sequence[Stage], rows: Sequence[Class]) -> None:
        self.stages, self.interned = stages, Interned()
        self.axes = [
            {names[k]: f"{ROW}{n}" for n, (_, names) in enumerate(rows)} for k in range(len(stages))
        ]
        self.tuples: list[tuple[int, ...]] = []
        self.made: dict[str, tuple[Affine, ...]] = {}
        """For each tensor that a reduction stores: the index of the store, in row axes."""

    def stage(self, k: int) -> RowStage:
        s, axes = self.stages[k], self.axes[k]
        inner = [a for a in s.axes if a.name not in axes]
        if s.combine and any(a in s.parallel for a in inner):
            raise UnsupportedKernel(
                f"expected reductions along whole rows, got {s.name}: {LEFT_ALONE}"
            )
        extents = tuple(a.extent for a in inner)
        if extents not in self.tuples:
            self.tuples.append(extents)
        names = [f"{INNER}{self.tuples.index(extents)}_{n}" for n in range(len(inner))]
        new = axes | {a.name: name for a, name in zip(inner, names, strict=True)}
        places = {old: Affine.axis(name) for old, name in new.items()}
        known = dict[int, Expr]()
        values = tuple(self._placed(v, places, known) for v in s.values)
        stores = tuple(
            Store(x.tensor, tuple(e.substitute(places) for e in x.index)) for x in s.stores
        )
        if s.combine:
            self.made |= {x.tensor: x.index for x in stores}
        return RowStage(
            tuple(Axis(name, a.extent) for a, name in zip(inner, names, strict=True)),
            values,
            stores,
            s.combine,
        )

    def _placed(self, e: Expr, places: dict[str, Affine], known: dict[int, Expr]) -> Expr:
        if id(e) not in known:
            match e:
                case Load():
                    made: Expr = e.substitute(places)
                    self._require_own_row(e, made)
                case Apply():
                    args = tuple(self._placed(a, places, known) for a in e.args)
                    made = Apply(e.op, args, e.dtype)
                case _:
                    made = e
            known[id(e)] = self.interned.of(made)
        return known[id(e)]

    def _require_own_row(self, before: Load, x: Expr) -> None:
        assert isinstance(x, Load)
        if x.tensor in self.made and self.made[x.tensor] != x.index:
            raise UnsupportedKernel(
                f"expected what is reduced to be read for its own row, got {before}: {LEFT_ALONE}"
            )


def loads_of(stage: RowStage) -> tuple[Load, ...]:
    """The distinct loads of a stage, in the order in which it reads them."""
    return distinct_loads(stage.values)

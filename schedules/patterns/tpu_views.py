"""Stages over rows whose tensors are matrices of rows and inner points, as TPUs take them.

A tensor that has all axes of the rows and all inner ones is `(rows, points)`, one that has the rows
alone `(rows, 1)`, one that has inner axes alone `(1, points)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.patterns.gpu_stages import GpuStages, loads_of
from hlotune.schedules.patterns.inlined import LEFT_ALONE, PLACES

TYPES = ("f32", "bf16", "i32")
"""Element types of tensors."""


@dataclass(frozen=True, slots=True)
class View:
    """How a tensor is a matrix."""

    order: tuple[int, ...]
    """Its dimensions as the matrix has them: those of rows, then the inner ones."""
    shape: tuple[int, int]
    has_rows: bool


def views(stages: GpuStages) -> dict[str, View]:
    """The matrix of each argument and result.

    Raises UnsupportedKernel where a tensor is none, or two different ones.
    """
    found = dict[str, View]()
    made = {x.tensor for s in stages.stages if s.combine for x in s.stores}
    for s in stages.stages:
        results = {t.name for t in stages.results}
        read = [x for x in loads_of(s) if x.tensor not in made and x.tensor != PLACES]
        if any(x.divisors and any(d != 1 for d in x.divisors) for x in read):
            raise _refused("loads without gaps", read)
        accesses = [(x.tensor, x.index) for x in read]
        accesses += [(x.tensor, x.index) for x in s.stores if x.tensor in results]
        for tensor, index in accesses:
            view = _view(stages, s.inner, tensor, index)
            if found.setdefault(tensor, view) != view:
                raise _refused(f"one way to read {tensor}", s.values)
    for t in (*stages.arguments, *stages.results):
        if t.dtype not in TYPES:
            raise _refused(f"tensors of {', '.join(TYPES)}", t.dtype)
    return found


def _refused(expected: str, got: object) -> UnsupportedKernel:
    return UnsupportedKernel(f"expected {expected}, got {got}: {LEFT_ALONE}")


def _view(stages: GpuStages, inner: Sequence[Axis], tensor: str, index: Sequence[Affine]) -> View:
    kept = [(d, e) for d, e in enumerate(index) if e.terms or e.constant]
    axes = [e.terms[0][0] if len(e.terms) == 1 else "" for _, e in kept]
    wanted = {
        ways: [*rows, *columns]
        for ways, rows, columns in (
            ((True, True), [a.name for a in stages.rows], [a.name for a in inner]),
            ((True, False), [a.name for a in stages.rows], []),
            ((False, True), [], [a.name for a in inner]),
            ((False, False), [], []),
        )
    }
    plain = all(e == Affine.axis(a) for (_, e), a in zip(kept, axes, strict=True))
    ways = next((w for w, names in wanted.items() if sorted(names) == sorted(axes)), None)
    shape = next(t for t in (*stages.arguments, *stages.results) if t.name == tensor).shape
    extents = {a.name: a.extent for a in (*stages.rows, *inner)}
    whole = plain and all(shape[d] == extents[a] for (d, _), a in zip(kept, axes, strict=True))
    units = all(shape[d] == 1 for d in range(len(shape)) if d not in {d for d, _ in kept})
    if ways is None or not whole or not units:
        raise _refused(
            f"{tensor} to be read along whole rows or columns", ", ".join(map(str, index))
        )
    order = [kept[axes.index(a)][0] for a in wanted[ways]]
    order += [d for d in range(len(shape)) if d not in order]
    points = prod(a.extent for a in inner)
    return View(tuple(order), (stages.count if ways[0] else 1, points if ways[1] else 1), ways[0])

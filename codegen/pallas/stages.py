"""`triton_map`, `triton_stages` and `triton_long_stages`: any stages over independent rows."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import DTYPES, struct
from hlotune.codegen.pallas.expressions import WIDTHS, Evaluation, Places
from hlotune.codegen.pallas.flat_loads import all_of, digits, flat, flat_load
from hlotune.codegen.pallas.triton import call_for_all, store
from hlotune.schedules.ir.compute import Store, Tensor
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.monoids import MAX, SUM, Monoid
from hlotune.schedules.patterns.gpu_stages import GpuStages, RowStage
from hlotune.schedules.spaces.gpu.space import next_power_of_two

Results = tuple[jax.Array, ...]


def triton_map(
    stages: GpuStages, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> Results:
    """A block of rows and of their inner points a program; nothing is reduced."""
    columns = knobs["columns"]

    def body(*refs: Any) -> None:
        block = _Block(stages, refs, knobs["rows"])
        for stage in stages.stages:
            block.run(stage, pl.program_id(1) * columns, columns)

    grid = pl.cdiv(stages.count, knobs["rows"]), pl.cdiv(stages.width, columns)
    return _called(stages, body, grid, knobs, interpret, operands)


def triton_stages(
    stages: GpuStages, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> Results:
    """Some whole rows a program, so that what several stages read is read once."""

    def body(*refs: Any) -> None:
        block = _Block(stages, refs, knobs["rows"])
        for stage in stages.stages:
            block.run(stage, 0, next_power_of_two(stage.points))

    return _called(
        stages, body, (pl.cdiv(stages.count, knobs["rows"]),), knobs, interpret, operands
    )


def triton_long_stages(
    stages: GpuStages, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> Results:
    """The same, where each stage goes through its rows part by part."""

    def body(*refs: Any) -> None:
        block = _Block(stages, refs, knobs["rows"])
        for stage in stages.stages:
            width = min(knobs["block"], next_power_of_two(stage.points))
            block.run_in_parts(stage, width)

    return _called(
        stages, body, (pl.cdiv(stages.count, knobs["rows"]),), knobs, interpret, operands
    )


def _called(
    stages: GpuStages,
    body: Any,
    grid: tuple[int, ...],
    knobs: dict[str, int],
    interpret: bool,
    operands: Sequence[jax.Array],
) -> Results:
    types = ["i8" if t.dtype == "i1" else t.dtype for t in stages.results]
    results = [struct((t.elements,), d) for t, d in zip(stages.results, types, strict=True)]
    made = call_for_all(body, grid, [flat(x) for x in operands], results, knobs, interpret)
    pairs = zip(made, stages.results, strict=True)
    return tuple(x.reshape(t.shape).astype(DTYPES[t.dtype]) for x, t in pairs)


class _Block:
    """Some rows of one program: values have an axis of rows and one of inner points."""

    def __init__(self, stages: GpuStages, refs: Sequence[Any], rows: int) -> None:
        tensors = (*stages.arguments, *stages.results)
        self.tensors: dict[str, Tensor] = {t.name: t for t in tensors}
        self.refs = dict(zip(self.tensors, refs, strict=True))
        self.results = {t.name for t in stages.results}
        self.rows = rows
        first = pl.program_id(0) * rows
        points = (first + jnp.arange(rows))[:, None]
        self.in_rows = None if stages.count % rows == 0 else points < stages.count
        self.row_places = digits(points, stages.rows)
        self.row_spans = {a.name: a.extent for a in stages.rows}
        self.reduced: dict[str, jax.Array] = {}
        self.loaded: dict[Any, jax.Array] = {}
        self.known: dict[tuple[str, int], tuple[Places, Any]] = {}

    def run(self, stage: RowStage, first: Any, width: int) -> None:
        """A stage at `width` inner points from `first` on, and all of it where it reduces."""
        # Stages over the same points have places, and so loads and values, in common.
        key = ",".join(a.name for a in stage.inner), width
        if key not in self.known:
            self.known[key] = self._points(stage, first, width)
        places, inside = self.known[key]
        values = self._values(stage, places, inside)
        if stage.combine is None:
            self._store_all(stage, values, places, inside, width)
            return
        whole = [self._spread(v, width) for v in values]
        made = [_folded(stage.combine, _masked(stage.combine, v, inside)) for v in whole]
        self._keep(stage, made)

    def run_in_parts(self, stage: RowStage, width: int) -> None:
        """A stage at all of its inner points, `width` at a time."""
        parts = pl.cdiv(stage.points, width)
        if stage.combine is None:

            def stored(n: Any, nothing: Any) -> Any:
                places, inside = self._points(stage, n * width, width)
                values = self._values(stage, places, inside)
                self._store_all(stage, values, places, inside, width)
                return nothing

            lax.fori_loop(0, parts, stored, None)
            return
        combine = stage.combine

        def merged(n: Any, sums: Results) -> Results:
            places, inside = self._points(stage, n * width, width)
            values = [self._spread(v, width) for v in self._values(stage, places, inside)]
            pairs = zip(sums, values, strict=True)
            return tuple(_merged(combine, s, _masked(combine, v, inside)) for s, v in pairs)

        start = tuple(
            jnp.full((self.rows, width), _identity(combine, v.dtype), WIDTHS[v.dtype])
            for v in stage.values
        )
        self._keep(stage, [_folded(combine, s) for s in lax.fori_loop(0, parts, merged, start)])

    def _points(self, stage: RowStage, first: Any, width: int) -> tuple[Places, Any]:
        """Inner points from `first` on, and which of them there are."""
        points = (first + jnp.arange(width))[None, :]
        inside = None if stage.points % width == 0 else points < stage.points
        return {**self.row_places, **digits(points, stage.inner)}, inside

    def _values(self, stage: RowStage, places: Places, inside: Any) -> list[jax.Array]:
        spans = self.row_spans | {a.name: a.extent for a in stage.inner}
        evaluation = Evaluation(places, lambda x: self._load(x, evaluation, spans, inside))
        return [evaluation.value(v) for v in stage.values]

    def _load(
        self, x: Load, evaluation: Evaluation, spans: dict[str, int], inside: Any
    ) -> jax.Array:
        if x.tensor in self.reduced:
            return self.reduced[x.tensor]
        axes = [a for e in x.index for a, _ in e.terms]
        key = x, x.outside, *(id(evaluation.places[a]) for a in axes)
        if key not in self.loaded:
            self.loaded[key] = self._loaded(x, evaluation, spans, inside)
        return self.loaded[key]

    def _loaded(
        self, x: Load, evaluation: Evaluation, spans: dict[str, int], inside: Any
    ) -> jax.Array:
        masks = [self.in_rows if any(a in self.row_spans for a in x.axes) else None]
        masks.append(inside if any(a not in self.row_spans for a in x.axes) else None)
        return flat_load(self.refs[x.tensor], self.tensors[x.tensor], x, evaluation, spans, masks)

    def _keep(self, stage: RowStage, made: Sequence[jax.Array]) -> None:
        """What was reduced, `(rows,)` each, for later stages and as results."""
        for x, value in zip(stage.stores, made, strict=True):
            self.reduced[x.tensor] = value[:, None]
            if x.tensor in self.results:
                self._store(x, value[:, None], self.row_places, self.in_rows, 1)

    def _store_all(
        self,
        stage: RowStage,
        values: Sequence[jax.Array],
        places: Places,
        inside: Any,
        width: int,
    ) -> None:
        mask = all_of([self.in_rows, inside], (self.rows, width))
        for x, value in zip(stage.stores, values, strict=True):
            self._store(x, value, places, mask, width)

    def _store(self, x: Store, value: jax.Array, places: Places, mask: Any, width: int) -> None:
        tensor = self.tensors[x.tensor]
        evaluation = Evaluation(places, lambda load: self.reduced[load.tensor])
        parts = [evaluation.place(e) * s for e, s in zip(x.index, tensor.strides, strict=True)]
        offset = self._spread(sum(parts, start=jnp.int32(0)), width)
        ref = self.refs[x.tensor]
        store(ref.at[offset], self._spread(value, width).astype(ref.dtype), mask)

    def _spread(self, value: jax.Array, width: int) -> jax.Array:
        return jnp.broadcast_to(value, (self.rows, width))


def _masked(combine: Monoid, values: jax.Array, inside: Any) -> jax.Array:
    """The values, and what changes nothing where there are none."""
    if inside is None:
        return values
    dtype = "f32" if values.dtype == jnp.float32 else "i32"
    return jnp.where(inside, values, _identity(combine, dtype))


def _identity(combine: Monoid, dtype: str) -> Any:
    return WIDTHS[dtype](combine.identities((dtype,))[0].value)


def _folded(combine: Monoid, values: jax.Array) -> jax.Array:
    """`(rows, width)` to `(rows,)`."""
    if combine is SUM:
        return jnp.sum(values, axis=1)
    return jnp.max(values, axis=1) if combine is MAX else jnp.min(values, axis=1)


def _merged(combine: Monoid, a: jax.Array, b: jax.Array) -> jax.Array:
    if combine is SUM:
        return a + b
    return jnp.maximum(a, b) if combine is MAX else jnp.minimum(a, b)

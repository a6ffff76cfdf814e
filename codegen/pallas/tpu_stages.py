"""`tpu_stages`: any stages over independent rows on TPUs, some whole rows a step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import struct
from hlotune.codegen.pallas.expressions import WIDTHS, Evaluation
from hlotune.codegen.pallas.flat_loads import digits
from hlotune.codegen.pallas.tpu import compiler_parameters
from hlotune.schedules.ir.compute import Axis, Tensor
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.patterns.gpu_stages import GpuStages, RowStage
from hlotune.schedules.patterns.tpu_views import View, views
from hlotune.schedules.spaces.tpu.space import held_bytes

Results = tuple[jax.Array, ...]


def tpu_stages(
    stages: GpuStages, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> Results:
    """Takes and gives arrays of the stages' own shapes; XLA puts their axes in order around it."""
    rows, found = knobs["rows"], views(stages)

    def block(t: Tensor) -> Any:
        view = found[t.name]
        if view.has_rows:
            return pl.BlockSpec((rows, view.shape[1]), lambda i: (i, 0))
        return pl.BlockSpec(view.shape, lambda i: (0, 0))

    def body(*refs: Any) -> None:
        _Rows(stages, refs, rows).run()

    called = pl.pallas_call(
        body,
        out_shape=tuple(struct(found[t.name].shape, t.dtype) for t in stages.results),
        grid=(pl.cdiv(stages.count, rows),),
        in_specs=[block(t) for t in stages.arguments],
        out_specs=tuple(block(t) for t in stages.results),
        compiler_params=compiler_parameters(("parallel",), int(held_bytes(stages, np.array(rows)))),
        interpret=interpret,
    )
    pairs = zip(operands, stages.arguments, strict=True)
    made = called(*(_as_matrix(x, found[t.name]) for x, t in pairs))
    given = zip(made, stages.results, strict=True)
    return tuple(_from_matrix(x, found[t.name], t.shape) for x, t in given)


def _as_matrix(x: jax.Array, view: View) -> jax.Array:
    return jnp.transpose(x, view.order).reshape(view.shape)


def _from_matrix(x: jax.Array, view: View, shape: tuple[int, ...]) -> jax.Array:
    back = tuple(view.order.index(d) for d in range(len(shape)))
    return jnp.transpose(x.reshape(tuple(shape[d] for d in view.order)), back)


class _Rows:
    """One step: some rows of all stages."""

    def __init__(self, stages: GpuStages, refs: tuple[Any, ...], rows: int) -> None:
        self.stages, self.rows = stages, rows
        names = [t.name for t in (*stages.arguments, *stages.results)]
        self.refs = dict(zip(names, refs, strict=True))
        self.results = {t.name for t in stages.results}
        self.reduced: dict[str, jax.Array] = {}
        self.evaluations: dict[tuple[Axis, ...], Evaluation] = {}

    def run(self) -> None:
        for stage in self.stages.stages:
            values = [self._evaluation(stage).value(v) for v in stage.values]
            whole = [jnp.broadcast_to(v, (self.rows, stage.points)) for v in values]
            for x, value in zip(stage.stores, whole, strict=True):
                made = value if stage.combine is None else _folded(stage, value)
                if stage.combine is not None:
                    self.reduced[x.tensor] = made
                if x.tensor in self.results:
                    ref = self.refs[x.tensor]
                    ref[...] = made.astype(ref.dtype)

    def _evaluation(self, stage: RowStage) -> Evaluation:
        if stage.inner not in self.evaluations:
            places = _Lazy(self.stages, stage, self.rows)
            self.evaluations[stage.inner] = Evaluation(places, self._load)
        return self.evaluations[stage.inner]

    def _load(self, x: Load) -> jax.Array:
        if x.tensor in self.reduced:
            return self.reduced[x.tensor]
        made: jax.Array = self.refs[x.tensor][...].astype(WIDTHS[x.dtype])
        return made


class _Lazy(dict[str, jax.Array]):
    """Points of axes, which few kernels ask for."""

    def __init__(self, stages: GpuStages, stage: RowStage, rows: int) -> None:
        super().__init__()
        self._stages, self._stage, self._rows = stages, stage, rows

    def __missing__(self, axis: str) -> jax.Array:
        first = pl.program_id(0) * self._rows
        points = first + lax.broadcasted_iota(jnp.int32, (self._rows, 1), 0)
        self |= digits(points, self._stages.rows)
        inner = lax.broadcasted_iota(jnp.int32, (1, self._stage.points), 1)
        self |= digits(inner, self._stage.inner)
        return self[axis]


def _folded(stage: RowStage, values: jax.Array) -> jax.Array:
    """`(rows, points)` to `(rows, 1)`."""
    if stage.combine is SUM:
        return jnp.sum(values, axis=1, keepdims=True)
    fold = jnp.max if stage.combine is MAX else jnp.min
    made: jax.Array = fold(values, axis=1, keepdims=True)
    return made

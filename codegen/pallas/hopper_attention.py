"""`hopper_attention`: two warpgroups of queries, whose products and exponentials take turns.

While one warpgroup multiplies, the other computes exponentials; a barrier that both pass keeps
them apart.  A third one copies blocks of keys and values ahead.  This is the order of work of
FlashAttention-3 (arXiv 2407.08608), as the example of Pallas for Hopper has it.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import DTYPES, LOG2_E, struct
from hlotune.codegen.pallas.hopper_rings import Stripes, stripe_rooms
from hlotune.codegen.pallas.mosaic import mosaic
from hlotune.schedules.errors import require
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.spaces.gpu.attention import WARPGROUPS

COMPUTING_REGISTERS, COPYING_REGISTERS = 232, 40
TILE_ROWS = 8
"""Rows of a tile, of which an operand has whole ones where one copy brings a block."""
Sums = tuple[jax.Array, jax.Array, jax.Array]


@dataclass(frozen=True)
class _Shared:
    """What the warpgroups of one block share."""

    queries: Stripes
    """Features of `block_q` rows for each warpgroup; its results are stored there as well."""
    keys: Stripes
    values: Stripes
    queries_here: Any
    keys_here: Any
    values_here: Any
    keys_used: Any
    values_used: Any
    turn: Any

    def take_turns(self) -> None:
        mosaic.barrier_arrive(self.turn)
        mosaic.barrier_wait(self.turn)


def hopper_attention(
    attention: GpuAttention, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Attention of `q (heads, queries, depth)` to `k` and `v (key heads, keys, depth)`."""
    require(not interpret, "hopper_attention", "has no interpreter: lower it for a GPU")
    a, q = attention, operands[0]
    made: jax.Array = mosaic.kernel(
        functools.partial(_kernel, a, knobs),
        out_type=struct(q.shape, a.element),
        # Heads change fastest: blocks of all heads that are equally long run at the same time.
        grid=(pl.cdiv(a.queries, WARPGROUPS * knobs["block_q"]), a.heads),
        grid_names=("queries", "heads"),
        num_threads=WARPGROUPS + 1,
        thread_name="warpgroup",
        compiler_params=mosaic.CompilerParams(approx_math=True),
    )(*operands)
    return made


def _kernel(a: GpuAttention, knobs: dict[str, int], q: Any, k: Any, v: Any, out: Any) -> None:
    bq, bk, stages = knobs["block_q"], knobs["block_k"], knobs["stages"]
    whole_tiles = a.queries % TILE_ROWS == a.keys % TILE_ROWS == 0

    def rooms(count: int, rows: int) -> tuple[Any, int]:
        return stripe_rooms(count, rows, a.depth, DTYPES[a.element], whole_tiles)

    (queries, stripes), (keys, _) = rooms(WARPGROUPS, bq), rooms(stages, bk)

    def scope(*memory: Any) -> None:
        three = (Stripes(m[0], m[1]) for m in memory[:3])
        _block(a, knobs, q, k, v, out, _Shared(*three, *memory[3:]))

    pl.run_scoped(
        scope,
        queries,
        keys,
        keys,
        mosaic.Barrier(num_arrivals=stripes, num_barriers=WARPGROUPS),
        mosaic.Barrier(num_arrivals=stripes, num_barriers=stages),
        mosaic.Barrier(num_arrivals=stripes, num_barriers=stages),
        mosaic.Barrier(num_arrivals=WARPGROUPS, num_barriers=stages),
        mosaic.Barrier(num_arrivals=WARPGROUPS, num_barriers=stages),
        mosaic.Barrier(num_arrivals=WARPGROUPS),
        collective_axes="warpgroup",
    )


def _block(
    a: GpuAttention, knobs: dict[str, int], q: Any, k: Any, v: Any, out: Any, s: _Shared
) -> None:
    warpgroup = lax.axis_index("warpgroup")
    bq, bk = knobs["block_q"], knobs["block_k"]
    number = lax.axis_index("queries")
    if a.causal:  # the longest first, so that the last wave is short
        number = pl.cdiv(a.queries, WARPGROUPS * bq) - 1 - number
    head, first = lax.axis_index("heads"), number * (WARPGROUPS * bq)
    steps: Any = pl.cdiv(a.keys, bk)
    if a.causal:
        steps = pl.cdiv(first + WARPGROUPS * bq, jnp.int32(bk))

    @pl.when(warpgroup < WARPGROUPS)
    def _() -> None:
        mosaic.set_max_registers(COMPUTING_REGISTERS, action="increase")
        start = first + warpgroup * bq
        at, here = (head, pl.ds(start, bq)), s.queries_here.at[warpgroup]
        s.queries.copy(q.at[at], 0, warpgroup, here, None)
        mosaic.barrier_wait(here)
        s.queries.store(
            _attended(a, knobs, start, steps, s).astype(out.dtype), warpgroup, out.at[at]
        )

    @pl.when(warpgroup == WARPGROUPS)
    def _() -> None:
        mosaic.set_max_registers(COPYING_REGISTERS, action="decrease")
        key_head = head if a.group == 1 else lax.div(head, jnp.asarray(a.group, head.dtype))
        _copy_ahead(knobs, k.at[key_head], v.at[key_head], steps, s)


def _copy_ahead(knobs: dict[str, int], k: Any, v: Any, steps: Any, s: _Shared) -> None:
    """Blocks of keys and values, each into the room of one that both warpgroups are done with."""
    bk, stages = knobs["block_k"], knobs["stages"]

    def copy(source: Any, target: Stripes, here: Any, step: Any, slot: Any) -> None:
        target.copy(source.at[pl.ds(step * bk, bk)], 0, slot, here.at[slot], None)

    @pl.loop(0, jnp.minimum(stages, steps))
    def _(n: Any) -> None:
        copy(k, s.keys, s.keys_here, n, n)
        copy(v, s.values, s.values_here, n, n)

    @pl.loop(0, jnp.maximum(steps - stages, 0))
    def _(n: Any) -> None:
        slot = lax.rem(n, jnp.asarray(stages, n.dtype))
        mosaic.barrier_wait(s.keys_used.at[slot])
        copy(k, s.keys, s.keys_here, n + stages, slot)
        mosaic.barrier_wait(s.values_used.at[slot])
        copy(v, s.values, s.values_here, n + stages, slot)


def _attended(
    a: GpuAttention, knobs: dict[str, int], start: Any, steps: Any, s: _Shared
) -> jax.Array:
    """What one warpgroup's queries make of all values, `(block_q, depth)` in f32."""
    bq, bk = knobs["block_q"], knobs["block_k"]
    warpgroup = lax.axis_index("warpgroup")
    rows, whole = mosaic.Layout.WGMMA.reduce(1), mosaic.Layout.WGMMA
    sums: Sums = (
        mosaic.layout_cast(jnp.zeros((bq, a.depth), jnp.float32), whole),
        mosaic.layout_cast(jnp.full((bq,), -jnp.inf, jnp.float32), rows),
        mosaic.layout_cast(jnp.zeros((bq,), jnp.float32), rows),
    )
    mosaic.barrier_wait(s.keys_here.at[0])
    pl.when(warpgroup == 1)(s.take_turns)
    step = functools.partial(_step, a, knobs, start, steps, s)
    if not a.causal:
        whole = a.keys // bk
        sums = lax.fori_loop(0, whole, functools.partial(step, masked=False), sums)
        if whole < steps:
            sums = lax.fori_loop(whole, steps, functools.partial(step, masked=True), sums)
    else:
        mine = pl.cdiv(start + bq, jnp.int32(bk))
        unmasked = lax.div(start, jnp.int32(bk))
        sums = lax.fori_loop(0, unmasked, functools.partial(step, masked=False), sums)
        sums = lax.fori_loop(unmasked, mine, functools.partial(step, masked=True), sums)
        lax.fori_loop(mine, steps, functools.partial(_pass, knobs, s), None)
    pl.when(warpgroup == 0)(s.take_turns)
    made, _, total = sums
    return made * lax.broadcast_in_dim(1 / total, made.shape, [0])


def _pass(knobs: dict[str, int], s: _Shared, n: Any, nothing: None) -> None:
    """A block of keys that only the other warpgroup looks at."""
    slot = lax.rem(n, jnp.asarray(knobs["stages"], n.dtype))
    mosaic.barrier_arrive(s.keys_used.at[slot])
    mosaic.barrier_arrive(s.values_used.at[slot])
    s.take_turns()
    s.take_turns()
    return nothing


def _step(
    a: GpuAttention,
    knobs: dict[str, int],
    start: Any,
    steps: Any,
    s: _Shared,
    n: Any,
    sums: Sums,
    masked: bool,
) -> Sums:
    made, largest, total = sums
    bq, bk, stages = knobs["block_q"], knobs["block_k"], jnp.asarray(knobs["stages"], n.dtype)
    slot = lax.rem(n, stages)

    def product(scores: Any) -> Any:
        for number in range(s.keys.count):
            keys = s.keys.read.at[slot, number].transpose((1, 0))
            mosaic.wgmma(scores, s.queries.read.at[lax.axis_index("warpgroup"), number], keys)
        s.take_turns()
        return scores[...]

    scores = pl.run_scoped(product, mosaic.ACC((bq, bk), jnp.float32))
    mosaic.barrier_arrive(s.keys_used.at[slot])
    if masked:
        scores = jnp.where(_seen(a, (bq, bk), start, n * bk), scores, -jnp.inf)
    scale = LOG2_E * a.factor
    larger = jnp.maximum(largest, scores.max(axis=1) * scale)
    fading = jnp.exp2(largest - larger)
    weights = jnp.exp2(scores * scale - lax.broadcast_in_dim(larger, scores.shape, [0]))
    made = made * lax.broadcast_in_dim(fading, made.shape, [0])
    total = total * fading + weights.sum(axis=1)
    narrow = weights.astype(DTYPES[a.element])
    barrier: Any = lax.optimization_barrier
    made, total, larger, narrow = barrier((made, total, larger, narrow))
    mosaic.barrier_arrive(s.turn)
    mosaic.barrier_wait(s.values_here.at[slot])
    mosaic.barrier_wait(s.turn)
    following = lax.rem(n + 1, stages)
    last = pl.cdiv(start + bq, jnp.int32(bk)) if a.causal else steps

    def weigh(sums: Any) -> None:
        s.values.multiply(sums, narrow, slot)
        pl.when(n + 1 < last)(lambda: mosaic.barrier_wait(s.keys_here.at[following]))

    weighed: jax.Array = pl.run_state(weigh)(mosaic.ACC.init(made))
    mosaic.barrier_arrive(s.values_used.at[slot])
    return weighed, larger, total


def _seen(a: GpuAttention, shape: tuple[int, int], query: Any, key: Any) -> jax.Array:
    """Which pairs of a block of queries and keys from these on count.

    In a causal attention no query that there is sees a key behind the last one.
    """
    ids = functools.partial(mosaic.broadcasted_iota, jnp.int32, shape, layout=mosaic.Layout.WGMMA)
    seen: jax.Array = (ids(0) + query) >= (ids(1) + key) if a.causal else ids(1) + key < a.keys
    return seen

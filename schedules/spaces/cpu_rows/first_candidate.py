"""The first candidate: numbers by formulas of extents and target, for each partition."""

from collections.abc import Mapping, Sequence
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.far_requests import reads_neighbours
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.bodies import innermost_reduce
from hlotune.schedules.spaces.cpu_rows.first_bodies import (
    body,
    is_held_past_caches,
    shares_loads,
)
from hlotune.schedules.spaces.cpu_rows.forms import (
    Form,
    is_outer,
    is_transposed,
    touched,
)
from hlotune.schedules.spaces.cpu_rows.partitions import Partition, row_bytes
from hlotune.schedules.spaces.cpu_rows.rows_together import rows_of_half
from hlotune.schedules.spaces.cpu_rows.sketch import sums_floats
from hlotune.schedules.spaces.cpu_rows.streams import (
    NEIGHBOURS_AHEAD,
    ROWS_AHEAD,
    at_least,
    bytes_ahead,
    bytes_of_row,
    is_large,
    passes_caches,
    reads_memory,
)
from hlotune.schedules.spaces.cpu_rows.transposes import asks_for_next_tile, tiles_together
from hlotune.schedules.spaces.cpu_rows.view import RowsKnobs
from hlotune.schedules.targets.cpu import LINE_BYTES
from hlotune.schedules.targets.machine_rates import MachineRates

REPAYS_WAKING = 4
"""How many times what waking takes a nest must take on one core to be divided among threads."""
ROWS_TOGETHER = 8
"""Rows that an iteration takes where all that it reads and stores of them fits into half of the
first cache: so many short stages, as one of means, have whole vectors."""
PIECE_BYTES = 1024
"""What an iteration reads in one piece where rows consist of shorter ones, as the groups of a group
norm do: memory is read in order only where the pieces of neighbouring rows are taken together."""
TASK_ELEMENTS = 1024
"""Elements in a task of an update of many arrays: so many that waking is worth it, and so few that
threads which get equally many tasks, some of them of small arrays, are busy for equally long."""
UNEVEN = 1.25
"""What the largest share of a thread may be of an equal one, where another axis has equal ones."""
ROWS_OF_CHUNK = 4
"""Bodies of a reduction over rows that all tiles take together."""
MOST_PIECES = 1024
"""Pieces that a long sum over rows is added up of."""
LONG_SUM, PIECE = 1024, 256
"""Terms of one lane from which on its sum is added up of pieces, and those of a piece."""
LARGE_AHEAD = 8192
"""What a reduction with many operations a point asks for ahead of itself in tensors that the caches
do not hold; measured with vectors of 32 bytes alone."""
TAPS_AHEAD = 4096
"""What is asked for ahead in such tensors by reductions along the lanes whose rows read the same
elements (`first_bodies.py`): rows of channels lie one behind the other, and those of images far
apart, in the same sets of a cache."""


def first_columns(space: RowsKnobs, partition: Partition) -> NDArray[np.int32]:
    """A config with these numbers for a partition; its sketch is 0.

    Where stages have their knobs in common, those of the largest one are put.
    """
    config = np.zeros(1 + len(space.knobs.knobs), dtype=np.int32)
    for nest in partition:
        for stage in nest.stages:
            if space.likes[stage.name] == stage.name:
                _put_body(space, config, nest, stage)
                _put_streams(space, config, nest, stage)
        if space.likes[nest.anchor.name] == nest.anchor.name:
            _put_blocks(space, config, nest)
    return config


def _put(space: RowsKnobs, config: NDArray[np.int32], kind: str, axis: str, value: int) -> None:
    column = space.columns[kind, axis]
    values = np.array(space.knobs.knobs[column - 1].values)
    config[column] = int(np.argmin(np.abs(values - value)))


def _put_body(space: RowsKnobs, config: NDArray[np.int32], nest: Nest, stage: Stage) -> None:
    form, lanes = space.forms[stage.name][0], space.lanes[stage.name]
    vectors, rows, unroll = body(space, stage, form, lanes)
    numbers = {"vectors": vectors, "rows": rows, "unroll": unroll}
    numbers["chunk"] = _chunk(space, nest, stage, form, numbers)
    if space.peeled[stage.name]:
        numbers["peel"] = 1
    for kind, value in numbers.items():
        put = _put_at_least if kind == "rows" and shares_loads(stage, form) else _put
        put(space, config, kind, stage.name, value)


def _put_streams(space: RowsKnobs, config: NDArray[np.int32], nest: Nest, stage: Stage) -> None:
    """What is asked for ahead where rows are computed one by one, or neighbours in several rows are
    read; and what passes the caches."""
    if ("ahead", stage.name) in space.columns:
        asked = 0
        if shares_loads(stage, space.forms[stage.name][0]):
            asked = TAPS_AHEAD if is_large(space.compute, stage, space.target) else 0
        elif nest.members:
            size = bytes_of_row(space.compute, nest, stage)
            again = any(s.reduce for s in nest.members)  # what is summed of a row is read again
            past = again and passes_caches(space.compute, nest.anchor, space.target)
            asked = bytes_ahead(space.compute, stage, space.target, size, past=past)
        elif reads_neighbours(space.compute, stage, space.target):
            asked = NEIGHBOURS_AHEAD
        elif _reads_pieces_of_rows(space, config, stage):
            chunk_bytes = _chunk_bytes(space, config, stage)
            asked = at_least(2 * chunk_bytes) or at_least(chunk_bytes)
        elif asks_for_next_tile(space.compute, stage, space.forms[stage.name][0], space.target):
            asked = LINE_BYTES
        elif stage.reduce and reads_memory(space.compute, stage, space.target):
            asked = _busy_ahead(space, stage)
        _put(space, config, "ahead", stage.name, asked)
    if ("past", stage.name) in space.columns:
        past = passes_caches(space.compute, stage, space.target)
        _put(space, config, "past", stage.name, int(past))


def _reads_pieces_of_rows(space: RowsKnobs, config: NDArray[np.int32], stage: Stage) -> bool:
    """Whether a sum of columns reads rows that no cache holds piece by piece, as many vectors of
    some rows as a register tile has: no piece is as long as what the hardware sees a stream in.
    With wide vectors alone.
    """
    form = space.forms[stage.name][0]
    far = space.target.has_wide_vectors and is_large(space.compute, stage, space.target)
    if not far or stage.scans or not _goes_on_in_memory(space, config, stage, form):
        return False
    return _step(space, config, stage, form, form.vector) < stage.extents[form.vector]


def _chunk_bytes(space: RowsKnobs, config: NDArray[np.int32], stage: Stage) -> int:
    """Bytes from rows that all register tiles take together to the next such rows."""
    outer, form = stage.reduce[0].name, space.forms[stage.name][0]
    rows, unroll = (int(space.values(config[None], k, stage.name)[0]) for k in ("chunk", "unroll"))
    if innermost_reduce(stage, form) == outer:
        rows *= unroll
    tensors = ((x, space.compute.tensor(x.tensor)) for x in stage.loads)
    return rows * max(abs(stride(x.index, t.strides, outer)) * BYTES[t.dtype] for x, t in tensors)


def _busy_ahead(space: RowsKnobs, stage: Stage) -> int:
    """What a reduction by itself asks for that computes much of what no cache holds.

    With vectors of 64 bytes those along the lanes do, as was measured of the largest of rows with
    its number; in sums of columns requests lose.
    """
    if not space.target.has_wide_vectors:
        return LARGE_AHEAD
    return ROWS_AHEAD if space.forms[stage.name][0].reduces else 0


def _chunk(space: RowsKnobs, nest: Nest, stage: Stage, form: Form, sizes: Mapping[str, int]) -> int:
    """Bodies of the outermost reduction that all tiles take together; 0 for all.

    Where lanes lie along results, rows of memory are then read whole.  Long sums of floats are
    pieces, so that their error does not grow with their length.
    """
    terms = prod(r.extent for r in stage.reduce)
    long_sum = sums_floats(stage) and terms > LONG_SUM
    if not stage.reduce or (stage is not nest.anchor and not long_sum):
        return 0
    outer, inner = stage.reduce[0], innermost_reduce(stage, form)
    own = {inner: sizes["unroll"]}
    if form.reduces:
        own[form.vector] = space.lanes[stage.name] * sizes["vectors"]
    bodies = ceil(outer.extent / own.get(outer.name, 1))
    if not form.reduces and long_sum and terms > outer.extent:
        return max(1, PIECE * outer.extent // terms)
    if not form.reduces and stage.scans and is_held_past_caches(space, stage):
        across = ceil(stage.extents[form.vector] / space.lanes[stage.name])
        return int(sizes["vectors"] < across)  # registers hold all that lies together, else no row
    if not form.reduces:
        return max(ROWS_OF_CHUNK, ceil(bodies / MOST_PIECES) if long_sum else 0)
    whole = prod(ceil(r.extent / own.get(r.name, 1)) for r in stage.reduce)
    if not long_sum or whole <= LONG_SUM:
        return 0
    return max(1, PIECE * bodies // whole)


def _put_blocks(space: RowsKnobs, config: NDArray[np.int32], nest: Nest) -> None:
    """Rows of an iteration, and iterations of a task."""
    stage = nest.anchor
    form = space.forms[stage.name][0]
    steps = {a: _step(space, config, stage, form, a) for a in nest.rows}
    block, outer = {a: 1 for a in nest.rows}, is_outer(space.compute, stage)
    if not nest.members and is_transposed(space.compute, stage, form):
        rows = steps.get(form.row, 1)
        block |= tiles_together(space.compute, stage, form, rows, space.target)
    if nest.members and nest.rows:
        last = nest.rows[-1]
        rows = min(
            _rows_together(space, nest, last),
            space.target.l1_bytes // max(1, 2 * row_bytes(space.compute, nest)),
        )
        block[last] = _divisor(stage.extents[last], max(1, rows // steps[last]) * steps[last])
        block[last] = max(1, block[last] // steps[last])
    rates = space.target.rates
    alone = _cycles(space.compute, nest, rates) <= REPAYS_WAKING * rates.wake_cycles
    wanted = 1 if alone else space.target.threads
    iterations = {a: ceil(stage.extents[a] / (steps[a] * block[a])) for a in nest.rows}
    for k, a in enumerate(nest.rows):
        later = [iterations[b] for b in nest.rows[k + 1 :]]
        tasks = _tasks(iterations[a], wanted, later)
        wanted = ceil(wanted / tasks)
        share = ceil(iterations[a] / tasks)
        if list(space.likes.values()).count(stage.name) > 1:
            share = min(share, max(1, TASK_ELEMENTS // steps[a]))
        own = a != form.vector and _goes_on_in_memory(space, config, stage, form)
        if nest.members or block[a] > 1 or own or (outer and a == form.row):
            tiles, blocks = block[a], share
        else:
            tiles, blocks = share, 1
        _put_at_least(space, config, "tiles", f"{stage.name} {a}", tiles)
        _put_at_least(space, config, "blocks", f"{stage.name} {a}", blocks)


def _goes_on_in_memory(
    space: RowsKnobs, config: NDArray[np.int32], stage: Stage, form: Form
) -> bool:
    """Whether a reduction with lanes along its results leaves these in memory and goes on there.

    All tiles of an iteration take each chunk together then: of a tensor whose rows are summed in
    several groups, one group is taken after the other.
    """
    chunk = int(space.values(config[None], "chunk", stage.name)[0])
    unroll = int(space.values(config[None], "unroll", stage.name)[0])
    return bool(stage.reduce) and not form.reduces and 0 < chunk * unroll < stage.reduce[0].extent


def _tasks(iterations: int, wanted: int, later: Sequence[int]) -> int:
    """The tasks that iterations along an axis are shared among: one where they would be uneven, as
    three for two threads are, and those along a later axis are not."""

    def is_even(n: int) -> bool:
        return ceil(n / wanted) * wanted <= UNEVEN * n

    if iterations <= wanted or is_even(iterations):
        return min(wanted, iterations)
    return 1 if any(is_even(n) for n in later) else wanted


def _rows_together(space: RowsKnobs, nest: Nest, last: str) -> int:
    """Rows along the last row axis of a nest that an iteration takes.

    Rows whose elements lie between those of other rows are read in pieces, and taken until these
    pieces are long, but for what the threads share.
    """
    stage, extent = nest.anchor, nest.anchor.extents[last]
    pieces = [n for x in stage.loads if (n := _piece_bytes(space.compute, nest, x, last))]
    if not pieces:
        return min(ROWS_TOGETHER, max(1, rows_of_half(space.compute, nest, space.target)))
    others = nest.row_points // extent
    share = ceil(extent / ceil(space.target.threads / others))
    return min(max(ROWS_TOGETHER, PIECE_BYTES // min(pieces)), share)


def _piece_bytes(compute: Compute, nest: Nest, load: Load, last: str) -> int:
    """Bytes of one row that lie together, with those of the next row behind them; 0 where rows do
    not consist of such pieces."""
    tensor = compute.tensor(load.tensor)
    steps = {a: abs(stride(load.index, tensor.strides, a)) for a in nest.anchor.extents}
    inside = prod(n for a, n in nest.anchor.extents.items() if 0 < steps[a] < steps[last])
    beyond = any(steps[a] > steps[last] for a in steps if a not in nest.rows)
    return steps[last] * BYTES[tensor.dtype] if beyond and 1 < inside == steps[last] else 0


def _put_at_least(
    space: RowsKnobs, config: NDArray[np.int32], kind: str, axis: str, value: int
) -> None:
    column = space.columns[kind, axis]
    values = space.knobs.knobs[column - 1].values
    reached = [k for k, x in enumerate(values) if x >= value]
    config[column] = reached[0] if reached else len(values) - 1


def _step(space: RowsKnobs, config: NDArray[np.int32], stage: Stage, form: Form, axis: str) -> int:
    """Elements of an axis that a body of the stage covers."""
    if axis == form.vector:
        return int(space.values(config[None], "vectors", stage.name)[0]) * space.lanes[stage.name]
    if axis == form.row:
        return int(space.values(config[None], "rows", stage.name)[0])
    return 1


def _divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent up to a number; that itself where all are small."""
    found = max(n for n in range(1, min(most, extent) + 1) if extent % n == 0)
    return found if 2 * found >= most else min(most, extent)


def _cycles(compute: Compute, nest: Nest, rates: MachineRates) -> float:
    """The cycles of one core for a nest, roughly."""
    moved = 0
    for s in nest.stages:
        for tensor in map(compute.tensor, touched(s)):
            moved += min(tensor.elements, s.points) * BYTES[tensor.dtype]
    work = sum(s.flops for s in nest.stages)
    return moved / rates.row_bytes + work / 16

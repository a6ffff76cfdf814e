"""The first candidate: numbers by formulas of extents and target, for each partition."""

from collections.abc import Mapping, Sequence
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import Load, operations
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.bodies import innermost_reduce
from hlotune.schedules.spaces.cpu_rows.forms import (
    CHAINS,
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
    bytes_ahead,
    is_large,
    passes_caches,
    reads_memory,
    reads_neighbours,
)
from hlotune.schedules.spaces.cpu_rows.transposes import tiles_together
from hlotune.schedules.spaces.cpu_rows.view import RowsKnobs
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.machine_rates import MachineRates

REPAYS_WAKING = 4
"""How many times what waking takes a nest must take on one core to be divided among threads."""
ROWS_TOGETHER = 8
"""Rows that an iteration takes where all that it reads and stores of them fits into half of the
first cache: so many short stages, as one of means, have whole vectors."""
PIECE_BYTES = 1024
"""What an iteration reads in one piece where rows consist of shorter ones, as the groups of a group
norm do: memory is read in order only where the pieces of neighbouring rows are taken together."""
ROWS_IN_LANES = 2
"""Rows whose reductions along the lanes are written out together."""
LONG_ROW, WIDE_VECTOR, LONG_ROW_OF_WIDE = 32, 64, 128
"""Vectors of a row from which on it is reduced alone, as one stream from memory: the first where
vectors have 32 bytes or less, as was measured with AVX2, the last for wider ones, with AVX-512."""
TAPS_TOGETHER, STEPS_OF_TAPS, TAPS_AHEAD = 8, 4, 4096
"""Rows of a reduction along the lanes that read the same elements, as taps of a window do, and are
written out together at most: each tensor is read once for all of them.  Then the steps of another
reduction that are written out, each a stream of its own, and what is asked for ahead of these: rows
of channels lie one behind the other, and those of images far apart, in the same sets of a cache."""
ROWS_IN_SCANS = 4
"""Rows that are accumulated along the lanes together: each waits for its own carry."""
MANY_OPERATIONS = 8
"""Operations of a point from which on few vectors side by side keep the units busy."""
MANY_LOADS = 3
"""Loads of a reduction from which on each vector of them needs a register more beside the sums."""
PLANES, PLANES_OF_WIDE = 2, 4
"""Steps of a sum over neighbours in a tensor that no cache holds which are written out together:
planes that would be read once more from the second cache.  With vectors of 64 bytes, of which
there are 32, four, and one vector of each row, whose last one, which is masked, is a small part."""
TASK_ELEMENTS = 1024
"""Elements in a task of an update of many arrays: so many that waking is worth it, and so few that
threads which get equally many tasks, some of them of small arrays, are busy for equally long."""
WHOLE_ROW = 16
"""Vectors across the results of a sum up to which registers take all of them, where there are 32: a
row is then read in order, and not half of it ahead of the other half of many rows."""
VECTORS_OF_OUTER, ROWS_OF_OUTER = 2, 4
"""Vectors and rows of an outer product that are written out: what rows share is loaded once, and
all passes over it are so many times fewer."""
UNEVEN = 1.25
"""What the largest share of a thread may be of an equal one, where another axis has equal ones."""
ROWS_OF_CHUNK = 4
"""Bodies of a reduction over rows that all tiles take together."""
STEPS_OF_HELD, STEPS_PAST = 2, 8
"""Rows written out together of a reduction whose results registers hold, and of a scan whose
results are stored past the caches: but for those of the last row, from which the next go on."""
MOST_PIECES = 1024
"""Pieces that a long sum over rows is added up of."""
LONG_SUM, PIECE = 1024, 256
"""Terms of one lane from which on its sum is added up of pieces, and those of a piece."""
MANY_CHAINS = 4
"""Vectors of a reduction with many operations a point, whose constants need registers too, that
hide its latency."""
CHAINS_OF_FEW = 2
"""The same on targets with few registers, in which more would not all stay."""
LARGE_AHEAD = 8192
"""What a reduction with many operations a point asks for ahead of itself in tensors that the caches
do not hold; measured with vectors of 32 bytes alone, as the number above."""


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
    vectors, rows, unroll = _body(space, stage, form, lanes)
    numbers = {"vectors": vectors, "rows": rows, "unroll": unroll}
    numbers["chunk"] = _chunk(space, nest, stage, form, numbers)
    if space.peeled[stage.name]:
        numbers["peel"] = 1
    for kind, value in numbers.items():
        put = _put_at_least if kind == "rows" and _shares_loads(stage, form) else _put
        put(space, config, kind, stage.name, value)


def _put_streams(space: RowsKnobs, config: NDArray[np.int32], nest: Nest, stage: Stage) -> None:
    """What is asked for ahead where rows are computed one by one, or neighbours in several rows are
    read; and what passes the caches."""
    if ("ahead", stage.name) in space.columns:
        asked = 0
        if _shares_loads(stage, space.forms[stage.name][0]):
            asked = TAPS_AHEAD if is_large(space.compute, stage, space.target) else 0
        elif nest.members:
            own = stage.points // max(1, nest.row_points)
            widest = max(BYTES[space.compute.tensor(x).dtype] for x in touched(stage))
            asked = bytes_ahead(space.compute, stage, space.target, own * widest)
        elif reads_neighbours(space.compute, stage, space.target):
            asked = NEIGHBOURS_AHEAD
        elif stage.reduce and space.target.vector_bytes < WIDE_VECTOR:
            asked = LARGE_AHEAD if reads_memory(space.compute, stage, space.target) else 0
        _put(space, config, "ahead", stage.name, asked)
    if ("past", stage.name) in space.columns:
        past = passes_caches(space.compute, stage, space.target)
        _put(space, config, "past", stage.name, int(past))


def _body(space: RowsKnobs, stage: Stage, form: Form, lanes: int) -> tuple[int, int, int]:
    """Vectors, rows and steps of the reduction that are written out."""
    if not form.vector:
        return 1, 1, 1
    across = ceil(stage.extents[form.vector] / lanes)
    if form.reduces:
        rows = stage.extents[form.row] // space.target.threads if form.row else 1
        if stage.scans:
            return 1, min(ROWS_IN_SCANS, max(1, rows)), 1
        beside = max(ROWS_IN_LANES, CHAINS // across if across < CHAINS else 1)
        rows = 1 if across >= long_row(space.target) else min(beside, max(1, rows))
        if _shares_loads(stage, form):
            return 1, min(TAPS_TOGETHER, stage.extents[form.row]), STEPS_OF_TAPS
        held = len(stage.stores) + (1 if len(stage.loads) < MANY_LOADS else 2)
        most = max(1, (space.target.vector_registers - 2) // held // rows)
        many = stage.flops > MANY_OPERATIONS * stage.points
        most_chains = CHAINS_OF_FEW if space.target.has_few_registers else MANY_CHAINS
        beside = most_chains if many else CHAINS
        chains = max(1, beside // rows)
        near = reads_neighbours(space.compute, stage, space.target)
        if near and space.target.vector_bytes >= WIDE_VECTOR:
            return 1, rows, PLANES_OF_WIDE
        steps = PLANES if near else 1
        if space.target.vector_bytes < WIDE_VECTOR and _joins_conditions(stage):
            return 1, rows, steps
        return _power_of_two(across, min(across, chains, most)), rows, steps
    if space.holds[stage.name]:
        steps = STEPS_PAST if _is_held_past_caches(space, stage) else STEPS_OF_HELD
        if CHAINS < across <= WHOLE_ROW and _has_threads_beside(space, stage, form):
            return WHOLE_ROW, 1, steps  # or as many as there are
        return _even_vectors(across, len(stage.stores), space.target), 1, steps
    if is_transposed(space.compute, stage, form):
        rows = min(lanes, space.target.vector_registers)  # all of them are turned at once
        return 1, min(rows, stage.extents[form.row]), 1
    if form.row and is_outer(space.compute, stage):
        return min(across, VECTORS_OF_OUTER), min(ROWS_OF_OUTER, stage.extents[form.row]), 1
    many = stage.flops > MANY_OPERATIONS * stage.points
    beside = 2 if many else space.target.rates.add_latency
    rows = min(stage.extents[form.row], beside // across) if form.row else 1
    return min(across, beside), max(1, rows), 1


def _shares_loads(stage: Stage, form: Form) -> bool:
    """Whether rows of a reduction along the lanes read the same elements, each at its own distance,
    as the taps of a gradient of a window's weights do."""
    if not (form.reduces and form.row):
        return False
    steps = [e.coefficients for x in stage.loads for e in x.index]
    length = stage.extents[form.vector]
    apart = ((abs(c.get(form.row, 0)), abs(c.get(form.vector, 0)) * length) for c in steps)
    return any(0 < row < whole for row, whole in apart)


def _is_held_past_caches(space: RowsKnobs, stage: Stage) -> bool:
    """Whether registers hold what a stage goes on from, and its results pass the caches."""
    return space.holds[stage.name] and passes_caches(space.compute, stage, space.target)


def _joins_conditions(stage: Stage) -> bool:
    """Whether a reduction joins conditions as it merges two elements, as the largest of a row with
    its number does.

    Vectors without masks of their own hold a condition in as many bytes as what was compared, and
    LLVM packs those of several vectors into one of bytes to join them, and unpacks the result.
    """
    if stage.combine is None or stage.combine.arity == 1:
        return False
    merged = stage.combine.merged(tuple(x.dtype for x in stage.values[: stage.combine.arity]))
    return any(x.op in ("and", "or") and x.dtype == "i1" for x in operations(merged))


def _has_threads_beside(space: RowsKnobs, stage: Stage, form: Form) -> bool:
    """Whether a sum of one result, of wide vectors, has points for all threads beside its lanes."""
    plain = len(stage.stores) == 1 and not stage.scans
    beside = prod(a.extent for a in stage.parallel if a.name != form.vector)
    wide = space.target.vector_bytes >= WIDE_VECTOR
    return plain and wide and beside >= space.target.threads


def _even_vectors(across: int, results: int, target: CpuTarget) -> int:
    """Vectors of results in registers beside each other, of so many across.

    Where registers do not hold all that hide the latency, the number by which the threads have
    equally much to do, and the largest of these.
    """
    most = max(1, (target.vector_registers - 2) // (results + 1))
    if most >= min(across, CHAINS):
        return min(across, CHAINS)

    def of_a_thread(vectors: int) -> int:
        return ceil(ceil(across / vectors) / target.threads) * vectors

    return min(range(most, most // 2, -1), key=of_a_thread)


def long_row(target: CpuTarget) -> int:
    """Vectors of a row from which on it is reduced alone."""
    return LONG_ROW_OF_WIDE if target.vector_bytes >= WIDE_VECTOR else LONG_ROW


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
    if not form.reduces and stage.scans and _is_held_past_caches(space, stage):
        return 1
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


def _power_of_two(extent: int, most: int) -> int:
    """The largest power of two up to a number that divides an extent; that itself where all are
    small, and the extent where it is no larger than the number."""
    if extent <= most:
        return extent
    largest = 1 << (most.bit_length() - 1)
    found = min(largest, extent & -extent)
    return found if 2 * found >= largest else largest


def _cycles(compute: Compute, nest: Nest, rates: MachineRates) -> float:
    """The cycles of one core for a nest, roughly."""
    moved = 0
    for s in nest.stages:
        for tensor in map(compute.tensor, touched(s)):
            moved += min(tensor.elements, s.points) * BYTES[tensor.dtype]
    work = sum(s.flops for s in nest.stages)
    return moved / rates.row_bytes + work / 16

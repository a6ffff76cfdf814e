"""The first candidate's bodies: vectors, rows and steps of a reduction that are written out."""

from math import ceil, prod

from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import operations
from hlotune.schedules.ir.far_requests import reads_neighbours
from hlotune.schedules.spaces.cpu_rows.forms import CHAINS, Form, is_outer, is_transposed
from hlotune.schedules.spaces.cpu_rows.rows_together import LONG_ROWS_TOGETHER, shares_long_rows
from hlotune.schedules.spaces.cpu_rows.streams import passes_caches
from hlotune.schedules.spaces.cpu_rows.transposes import rows_turned
from hlotune.schedules.spaces.cpu_rows.view import RowsKnobs
from hlotune.schedules.targets.cpu import CpuTarget

ROWS_IN_LANES = 2
"""Rows whose reductions along the lanes are written out together."""
LONG_ROW, LONG_ROW_OF_WIDE = 32, 128
"""Vectors of a row from which on it is reduced alone, as one stream from memory: the first where
vectors have 32 bytes or less, as was measured with AVX2, the last for wider ones, with AVX-512."""
TAPS_TOGETHER = 8
"""Rows of a reduction along the lanes that are written out together at most where they read the
same elements, as taps of a window do: each tensor is read once for all of them."""
STEPS_OF_TAPS = 4
"""Steps of another reduction, as over images, that are written out beside such rows: each of them
reads a stream of its own."""
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
WHOLE_ROW = 16
"""Vectors across the results of a sum up to which registers take all of them, where there are 32: a
row is then read in order, and not half of it ahead of the other half of many rows."""
VECTORS_OF_OUTER, ROWS_OF_OUTER = 2, 4
"""Vectors and rows of an outer product that are written out: what rows share is loaded once, and
all passes over it are so many times fewer."""
STEPS_OF_HELD, STEPS_PAST = 2, 8
"""Rows written out together of a reduction whose results registers hold, and of a scan whose
results are stored past the caches: but for those of the last row, from which the next go on."""
MANY_CHAINS = 4
"""Vectors of a reduction with many operations a point, whose constants need registers too, that
hide its latency."""
CHAINS_OF_FEW = 2
"""The same on targets with few registers, in which more would not all stay."""


def body(space: RowsKnobs, stage: Stage, form: Form, lanes: int) -> tuple[int, int, int]:
    """Vectors, rows and steps of the reduction that are written out."""
    if not form.vector:
        return 1, 1, 1
    across = ceil(stage.extents[form.vector] / lanes)
    if form.reduces:
        return _along_lanes(space, stage, form, across)
    if space.holds[stage.name]:
        steps = STEPS_PAST if is_held_past_caches(space, stage) else STEPS_OF_HELD
        if CHAINS < across <= WHOLE_ROW and _has_threads_beside(space, stage, form):
            return WHOLE_ROW, 1, steps  # or as many as there are
        return _even_vectors(across, len(stage.stores), space.target), 1, steps
    if is_transposed(space.compute, stage, form):
        rows = rows_turned(space.compute, stage, form, lanes, space.target)
        return 1, min(rows, stage.extents[form.row]), 1
    if form.row and is_outer(space.compute, stage):
        return min(across, VECTORS_OF_OUTER), min(ROWS_OF_OUTER, stage.extents[form.row]), 1
    many = stage.flops > MANY_OPERATIONS * stage.points
    beside = 2 if many else space.target.rates.add_latency
    rows = min(stage.extents[form.row], beside // across) if form.row else 1
    least = LONG_ROWS_TOGETHER if shares_long_rows(space.compute, stage, form, space.target) else 1
    return min(across, beside), max(least, rows), 1


def _along_lanes(space: RowsKnobs, stage: Stage, form: Form, across: int) -> tuple[int, int, int]:
    """The same where the lanes are points of the reduction, of which a row has so many vectors."""
    rows = stage.extents[form.row] // space.target.threads if form.row else 1
    if stage.scans:
        return 1, min(ROWS_IN_SCANS, max(1, rows)), 1
    if shares_loads(stage, form):
        return 1, min(TAPS_TOGETHER, stage.extents[form.row]), STEPS_OF_TAPS
    beside = max(ROWS_IN_LANES, CHAINS // across if across < CHAINS else 1)
    rows = 1 if across >= _long_row(space.target) else min(beside, max(1, rows))
    near = reads_neighbours(space.compute, stage, space.target)
    if near and space.target.has_wide_vectors:
        return 1, rows, PLANES_OF_WIDE
    steps = PLANES if near else 1
    if not space.target.has_wide_vectors and _joins_conditions(stage):
        return 1, rows, steps
    return _power_of_two(across, min(across, _vectors(space.target, stage, rows))), rows, steps


def _vectors(target: CpuTarget, stage: Stage, rows: int) -> int:
    """Vectors of each of so many rows that hide the latency of their sums and stay in registers."""
    held = len(stage.stores) + (1 if len(stage.loads) < MANY_LOADS else 2)
    most = max(1, (target.vector_registers - 2) // held // rows)
    many = stage.flops > MANY_OPERATIONS * stage.points
    most_chains = CHAINS_OF_FEW if target.has_few_registers else MANY_CHAINS
    return min(max(1, (most_chains if many else CHAINS) // rows), most)


def shares_loads(stage: Stage, form: Form) -> bool:
    """Whether rows of a reduction along the lanes read the same elements, each at its own distance,
    as the taps of a gradient of a window's weights do."""
    if not (form.reduces and form.row):
        return False
    steps = [e.coefficients for x in stage.loads for e in x.index]
    length = stage.extents[form.vector]
    apart = ((abs(c.get(form.row, 0)), abs(c.get(form.vector, 0)) * length) for c in steps)
    return any(0 < row < whole for row, whole in apart)


def is_held_past_caches(space: RowsKnobs, stage: Stage) -> bool:
    """Whether registers hold what a scan goes on from, and its results pass the caches."""
    held = stage.scans and space.holds[stage.name]
    return held and passes_caches(space.compute, stage, space.target)


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
    wide = space.target.has_wide_vectors
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


def _long_row(target: CpuTarget) -> int:
    """Vectors of a row from which on it is reduced alone."""
    return LONG_ROW_OF_WIDE if target.has_wide_vectors else LONG_ROW


def _power_of_two(extent: int, most: int) -> int:
    """The largest power of two up to a number that divides an extent; that itself where all are
    small, and the extent where it is no larger than the number."""
    if extent <= most:
        return extent
    largest = 1 << (most.bit_length() - 1)
    found = min(largest, extent & -extent)
    return found if 2 * found >= largest else largest

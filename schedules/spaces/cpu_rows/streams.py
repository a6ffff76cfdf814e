"""Knobs for tensors that are larger than the caches: what is asked for ahead, and stored past them.

Asking ahead pays where a stage that computes much reads what no core's second cache holds from call
to call, and with AVX-512 wherever results pass the caches; stores past the caches where even the
third cache has no room for the results, or none beside what is read for them.
"""

from collections.abc import Iterable, Sequence

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage, Tensor
from hlotune.schedules.ir.far_requests import streamed
from hlotune.schedules.patterns.row_limit import operations_of
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.forms import Form, is_transposed, touched
from hlotune.schedules.steps.steps import Ahead, NonTemporal, Step
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget

AHEAD_BYTES = (0, LINE_BYTES, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
NEIGHBOURS_AHEAD = 8192
"""What a stage asks for ahead that reads neighbours in several rows."""
NEW_MEMORY = 256 << 20
"""A result of so many bytes is new memory of the system in each call, whose pages it has just
cleared: scans that stored such past the caches, of several rows at a time, lost by half.  It is
`MAPPED_APART` of `codegen/runtime/malloc_settings.py`, which this room does not import."""
SHORT_AHEAD = 32768
"""The most that a stage of rows asks for ahead, but for the whole next row."""
NEXT_ROWS = 4
"""A stage asks for the whole next row where the second cache has room for so many."""
SMALL_PART = 4
"""Results of less than this part of the last cache are left to it, whatever else a kernel reads."""
ROWS_AHEAD = 16384
"""What rows of what no cache holds ask for ahead, at least, with vectors of 64 bytes and results
that pass the caches."""
BUSY = 4
"""Operations of a point from which on a stage has time for requests."""


def may_pass_caches(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether the results of a stage may each be stored once, as those of a reduction are that
    registers hold all along, and do not stay in the last cache, with rows that begin at lines."""
    results = [compute.tensor(x.tensor) for x in stage.stores]
    others = {x.tensor for s in compute.stages if s is not stage for x in s.stores}
    if stage.onto:
        return False
    if any(t.role != "result" or t.name in others for t in results):
        return False
    aligned = all(
        len(t.shape) < 2 or t.shape[-1] * BYTES[t.dtype] % LINE_BYTES == 0 for t in results
    )
    return aligned and not _stay_in_caches(compute, sum(t.bytes for t in results), target)


def _stay_in_caches(compute: Compute, stored: int, target: CpuTarget) -> bool:
    """Whether so many bytes of results are in the last cache when a kernel ends, for who reads them
    next: they are no more than half of it, and either a small part, or there is room beside what is
    read of the arguments."""
    given = (t for t in compute.tensors if t.role in ("argument", "constant"))
    read = sum(_read_bytes(compute, t) for t in given)
    is_small = stored < target.l3_bytes // SMALL_PART
    has_room = read + stored < target.l3_bytes
    return stored <= target.l3_bytes // 2 and (is_small or has_room)


def _read_bytes(compute: Compute, tensor: Tensor) -> int:
    """What stages read of a tensor at most: of one that is cut, or that elements are looked up in,
    an element for each load of each point."""
    found = [(s, x) for s in compute.stages for x in s.loads if x.tensor == tensor.name]
    if any(x.along is not None for _, x in found):
        return tensor.bytes
    return min(tensor.elements, sum(s.points for s, _ in found)) * BYTES[tensor.dtype]


def passes_caches(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether the first candidate stores the results of a stage past the caches."""
    size = max((compute.tensor(x.tensor).bytes for x in stage.stores), default=0)
    may = may_pass_caches(compute, stage, target)
    return may and not (stage.scans and size >= NEW_MEMORY)


def distances_ahead(
    compute: Compute, stage: Stage, form: Form, rows: Iterable[int]
) -> tuple[int, ...]:
    """What the knob of a stage may ask for ahead, which has this form first, and rows of so many
    bytes: a single line where it turns what it loads, and more than a short distance where rows are
    longer than that, or are what it reduces over."""
    turned = stage.combine is None and is_transposed(compute, stage, form)
    over_rows = bool(stage.reduce) and not stage.scans and not form.reduces
    far = over_rows or any(size > SHORT_AHEAD for size in rows)
    return tuple(
        n for n in AHEAD_BYTES if (turned or n != LINE_BYTES) and (far or n <= SHORT_AHEAD)
    )


def bytes_of_row(compute: Compute, nest: Nest, stage: Stage) -> int:
    """Bytes of the widest tensor of a stage that belong to a row of the nest around it."""
    widest = max(BYTES[compute.tensor(name).dtype] for name in touched(stage))
    return stage.points // max(1, nest.row_points) * widest


def bytes_ahead(
    compute: Compute, stage: Stage, target: CpuTarget, row_bytes: int, *, past: bool
) -> int:
    """What the first candidate asks for ahead: two rows at least, where it asks at all.

    With vectors of 64 bytes all stages ask of rows whose results pass the caches, also those that
    compute little.  Where the first cache has no room for a row, and the last one has, a stage asks
    for the whole next one if the second has room for that, or for as much of it as a knob can say;
    others that store such rows do not ask.
    """
    least, large = min(2 * row_bytes, SHORT_AHEAD), is_large(compute, stage, target)
    near = is_near(compute, stage, target)
    if target.has_wide_vectors and past and large:
        return at_least(max(least, ROWS_AHEAD))
    if near or operations_of(stage) < BUSY:
        return 0
    if target.has_wide_vectors and row_bytes > target.l1_bytes:
        if not large and NEXT_ROWS * row_bytes <= target.l2_bytes:
            return at_least(row_bytes) or AHEAD_BYTES[-1]
        return at_least(least) if stage.reduce else 0
    return at_least(least)


def at_least(wanted: int) -> int:
    """The least knob value of so many bytes, more than a line; 0 where none has, or is wanted."""
    return next((n for n in AHEAD_BYTES if n >= wanted and n != LINE_BYTES), 0)


def is_near(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether half of the second caches has room for what vectors of a stage go along."""
    total = sum(compute.tensor(name).bytes for name in streamed(compute, stage))
    return total <= target.threads * target.l2_bytes // 2


def reads_memory(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether a stage computes much of what no cache has room for."""
    return is_large(compute, stage, target) and operations_of(stage) >= BUSY


def is_large(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether no cache has room for what vectors of a stage go along."""
    total = sum(compute.tensor(name).bytes for name in streamed(compute, stage))
    return total > target.l3_bytes // 2


def stream_steps(compute: Compute, stage: Stage, ahead_bytes: int, past: bool) -> Sequence[Step]:
    """The steps of a stage for both."""
    steps: list[Step] = []
    if ahead_bytes:
        steps += [Ahead(stage.name, t, ahead_bytes) for t in streamed(compute, stage)]
    return [*steps, NonTemporal(stage.name)] if past else steps

"""How many rows an iteration takes so that the first cache has them from stage to stage.

Two rows of exponentials are better than one where both fit: the first is computed while the largest
element or the sum of the second comes together, which takes as long as several vectors.  So are two
long rows that are scaled by the same numbers, as those of a norm: these come from the second cache
once for both.
"""

from collections.abc import Set
from math import ceil, prod

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.patterns.row_limit import operations_of
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.spaces.cpu_rows.partitions import held_bytes, touched_bytes
from hlotune.schedules.spaces.cpu_rows.streams import BUSY, passes_caches
from hlotune.schedules.targets.cpu import CpuTarget

SLACK = 16
"""Rows that are counted closely may take a 16th more than half of the first cache, so that two rows
which fill that half are taken together though each has a sum beside its elements."""
LONG_ROWS_TOGETHER = 2
"""Long rows that are written out together where they read the same numbers."""


def rows_of_half(compute: Compute, nest: Nest, target: CpuTarget) -> int:
    """Rows for which half of the first cache has room for all that is read and stored; 0 where it
    has none for one row.

    With vectors of 64 bytes, rows of functions that take many operations are counted closely: a
    temporary that lies where a result is written later (`kept_in_results.py`) takes no room of its
    own, unless that result is stored past the caches.  Norms compute little, and are not counted
    so: with two rows of 1,024 elements they took a twentieth longer.
    """
    whole = touched_bytes(compute, nest)
    whole_rows = [s for s in nest.stages if s.points >= nest.anchor.points]
    long = any(operations_of(s) >= BUSY for s in whole_rows)
    if not target.has_wide_vectors or not long or passes_caches(compute, nest.anchor, target):
        return target.l1_bytes // (2 * whole)
    own = max(1, whole - _kept_in_results(compute, nest))
    return target.l1_bytes * (SLACK + 1) // (2 * SLACK * own)


def _kept_in_results(compute: Compute, nest: Nest) -> int:
    """Bytes of the one temporary of a row that may lie where a result goes; 0 where none may."""
    results = [compute.tensor(name) for name in nest.anchor.stored]
    alike = {(t.shape, t.dtype) for t in results}
    fitting = (
        held_bytes(compute, nest, s)
        for s in nest.members
        if any((t.shape, t.dtype) in alike for t in map(compute.tensor, s.stored))
    )
    return next(fitting, 0)


def shares_long_rows(compute: Compute, stage: Stage, form: Form, target: CpuTarget) -> bool:
    """Whether rows that wait for a sum of theirs, that the first cache does not hold and that are
    stored through the caches, read others that are the same for all of them; and three quarters of
    the second cache have room for two rows with these; with wide vectors alone.
    """
    waits = any(compute.tensor(x.tensor).role == "temporary" for x in stage.loads)
    if not (target.has_wide_vectors and form.row and waits):
        return False
    rows = _row_axes(compute, stage, form)
    if not _even_in_pairs(stage, form, rows, target) or passes_caches(compute, stage, target):
        return False
    own, same = _bytes_along(compute, stage, form, rows)
    room = 3 * target.l2_bytes // 4
    return same > 0 and own > target.l1_bytes and LONG_ROWS_TOGETHER * own + same <= room


def _row_axes(compute: Compute, stage: Stage, form: Form) -> set[str]:
    """The axes whose points are rows: all that a stage waits for is told apart along them."""
    waited = [{*x.axes} for x in stage.loads if compute.tensor(x.tensor).role == "temporary"]
    shared = set.intersection(*waited) & {a.name for a in stage.parallel}
    return (shared - {form.vector}) | {form.row}


def _even_in_pairs(stage: Stage, form: Form, rows: Set[str], target: CpuTarget) -> bool:
    """Whether each thread has two rows, and the busiest no more of them where they are pairs."""
    others = prod(n for a, n in stage.extents.items() if a in rows and a != form.row)
    extent = stage.extents[form.row]
    alone = ceil(others * extent / target.threads)
    pairs = ceil(others * ceil(extent / LONG_ROWS_TOGETHER) / target.threads)
    busiest = min(others * extent, LONG_ROWS_TOGETHER * pairs)
    return others * extent >= LONG_ROWS_TOGETHER * target.threads and busiest <= alone


def _bytes_along(compute: Compute, stage: Stage, form: Form, rows: Set[str]) -> tuple[int, int]:
    """Bytes that a stage reads and stores along its vectors for a row, and what it reads alike for
    all rows."""
    found = {x.tensor: {a for e in x.index for a, _ in e.terms} for x in stage.loads}
    found |= {x.tensor: {a for e in x.index for a, _ in e.terms} for x in stage.stores}
    points = prod(n for a, n in stage.extents.items() if a not in rows)
    own = same = 0
    for name, axes in found.items():
        size = min(points, compute.tensor(name).elements) * BYTES[compute.tensor(name).dtype]
        if form.vector in axes:
            own, same = (own + size, same) if form.row in axes else (own, same + size)
    return own, same

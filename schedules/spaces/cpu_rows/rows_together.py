"""How many rows an iteration takes so that the first cache has them from stage to stage.

Of exponentials two rows are better than one where both fit: the first is computed while the largest
element or the sum of the second comes together, which takes as long as several vectors.
"""

from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.row_limit import operations_of
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.partitions import held_bytes, touched_bytes
from hlotune.schedules.spaces.cpu_rows.streams import BUSY, passes_caches
from hlotune.schedules.targets.cpu import CpuTarget

SLACK = 16
"""Of half of the first cache rows may take more by a part of this number: sums are there as well,
and make no row of two too many."""


def rows_of_half(compute: Compute, nest: Nest, target: CpuTarget) -> int:
    """Rows of which half of the first cache has all that is read and stored; 0 of one that is
    longer.

    Where registers are many, as was measured with AVX-512, temporaries lie in a result that is not
    stored past the caches (`kept_in_results.py`).  Norms, which compute little, lost a twentieth
    with two rows of 1,024 elements.
    """
    whole = touched_bytes(compute, nest)
    whole_rows = [s for s in nest.stages if s.points >= nest.anchor.points]
    long = any(operations_of(s) >= BUSY for s in whole_rows)
    if target.has_few_registers or not long or passes_caches(compute, nest.anchor, target):
        return target.l1_bytes // (2 * whole)
    own = max(1, whole - _kept_in_results(compute, nest))
    return target.l1_bytes * (SLACK + 1) // (2 * SLACK * own)


def _kept_in_results(compute: Compute, nest: Nest) -> int:
    """Bytes of a row's temporaries that may lie where a result goes."""
    results = [compute.tensor(name) for name in nest.anchor.stored]
    alike = {(t.shape, t.dtype) for t in results}
    return sum(
        held_bytes(compute, nest, s)
        for s in nest.members
        if any((t.shape, t.dtype) in alike for t in map(compute.tensor, s.stored))
    )

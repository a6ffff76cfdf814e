"""Whether register tiles take all rows of a panel before the next panel, or all panels of a row.

What is packed for vectors lies in panels.  A task that takes all panels for each row of tiles reads
all of them again for each row; one that takes all its rows for each panel reads these again.  Where
the second cache holds both, that is better which reads less of it beyond the first.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace

NEAR_SHARE = 0.7
"""Share of the first cache that stays there while something else is read once."""


def reads_less_by_panels(
    space: ContractionSpace, config: NDArray[np.int32], sketch: Sketch
) -> bool:
    """Whether a thread reads less from the second cache with the vectorized axis outermost.

    A panel that the first cache does not hold comes from the second one either way.
    """
    c, v, tile = space.contraction, sketch.vector, space.tiling(config).register
    target, rest = space.target, [a for a in c.parallel if a.name != v]
    panels = -(-c.core.extents[v] // (tile[v] * space.lanes))
    rows = -(-prod(-(-a.extent // tile[a.name]) for a in rest) // target.threads)
    packed_bytes = _bytes(c, lambda x: c.stride(x, v) and not {a.name for a in rest} & {*x.axes})
    rows_bytes = _bytes(c, lambda x: not c.stride(x, v)) // target.threads
    panel_bytes, near_bytes = packed_bytes / panels, NEAR_SHARE * target.l1_bytes
    if not rows_bytes or packed_bytes + rows_bytes > target.l2_bytes:
        return False
    if packed_bytes <= near_bytes or panel_bytes > near_bytes:
        return False
    stay = rows_bytes + panel_bytes <= near_bytes
    return stay or rows_bytes * panels < packed_bytes * rows


def _bytes(c: Contraction, which: Callable[[Load], object]) -> int:
    return sum(c.compute.tensor(x.tensor).bytes for x in c.operands if which(x))

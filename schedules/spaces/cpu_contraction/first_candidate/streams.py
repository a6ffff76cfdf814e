"""Packed weights that the second cache does not hold and that are used once: several panels are
read side by side.

A product of one row reads each panel once, one line behind the other.  A core asks the third cache
or memory for more lines at a time where it goes along several streams, up to about four.
"Does not hold" means that they have more bytes than the second cache, so that they come from the
third one, or from memory where that is smaller too.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.streamed_operands import (
    REPAYS_PACKING,
)
from hlotune.schedules.spaces.cpu_contraction.sketch import digit, packs_at_load
from hlotune.schedules.spaces.cpu_contraction.vector_axes import vector_axes
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.steps.pack import has_one_load
from hlotune.schedules.targets.cpu import CpuTarget

STREAMS = (1, 2, 3, 4)
"""Panels that a register tile may read side by side."""
BEST = 4
"""Panels that are one vector wide.  This and the next number were measured with AVX2, with vectors
of 32 bytes; for wider ones they are a guess."""
UNROLLED = 8
"""Steps of the reduction: with them each stream has some lines in one iteration."""


def has_streams(c: Contraction, target: CpuTarget) -> bool:
    """Whether a constant that is used little has more bytes than the second cache."""
    return any(_comes_once(c, target, x) for x in c.operands)


def _comes_once(c: Contraction, target: CpuTarget, x: Load) -> bool:
    tensor = c.compute.tensor(x.tensor)
    large = tensor.role == "constant" and tensor.bytes > target.l2_bytes
    little = c.core.flops / tensor.bytes < REPAYS_PACKING
    in_panels = any(digit(c, x, v) == 0 for v in vector_axes(c))
    return large and little and in_panels and has_one_load(c.compute, x.tensor)


def is_one_stream(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether a config would read such a constant once, for one row of results that is long enough
    to give each thread a vector of each stream."""
    sketch = space.sketches[int(config[0])]
    axes = [a for a in space.contraction.parallel if a.name not in space.contraction.apart]
    extents = {a.name: a.extent for a in axes if a.extent > 1}
    one_row = [*extents] == [sketch.vector]
    shortest = BEST * space.lanes * space.target.threads
    asked = packs_at_load(sketch) and bool(space.knobs.columns("streams"))
    return asked and one_row and extents[sketch.vector] >= shortest


def side_by_side(space: ContractionSpace, config: NDArray[np.int32]) -> NDArray[np.int32]:
    """The config with as many vectors as streams, in groups of one tile."""
    c, found = space.contraction, config.copy()
    vector = space.sketches[int(config[0])].vector
    rows = np.array([BEST if a.name == vector else 1 for a in c.parallel])
    space.knobs.put(found, "register", rows)
    space.knobs.put(found, "group", np.ones_like(rows))
    space.knobs.put(found, "unroll", np.array([min(r.extent, UNROLLED) for r in c.reduce]))
    space.knobs.put(found, "streams", np.array([BEST]))
    return found

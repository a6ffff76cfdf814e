"""Limits that hang on several steps at once: registers, code size, scratch.

`schedules/spaces/cpu_contraction/batch.py` states the same limits on arrays of configs; a property
test binds the two.
"""

from math import ceil, inf, prod

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.borders import bordering
from hlotune.schedules.ir.nest import LoopNest, StageNest, region, stored_bytes
from hlotune.schedules.steps.tile_products import tile_counts, tile_registers
from hlotune.schedules.steps.validate import check_form
from hlotune.schedules.targets.units import AMX_REGISTERS

CODE_STATEMENTS = 1024
"""Statements written out in one function, all bodies together: some 50 ms of LLVM."""
TASK_BYTES = 4 << 20
CALL_BYTES = 256 << 20
MOST_BYTES = {"register": 0, "task": TASK_BYTES, "call": CALL_BYTES, "load": inf}
"""Of a buffer, by its scope; what is packed when a program is loaded is no scratch."""


def check(nest: LoopNest) -> None:
    """Raises ScheduleError where a nest passes a limit, or has a form that has no code."""
    check_form(nest)
    for s in nest.stages:
        name, needed = s.stage.name, registers(nest, s)
        if needed > nest.target.vector_registers:
            raise ScheduleError(
                f"{name}: the register tile needs {needed} vector registers, "
                f"the target has {nest.target.vector_registers}: use a smaller tile"
            )
        if s.tiles and (needed := tile_registers(*tile_counts(nest, s))) > AMX_REGISTERS:
            raise ScheduleError(
                f"{name}: its tiles need {needed} registers of the matrix unit, which has "
                f"{AMX_REGISTERS}: use a smaller tile"
            )
        if (size := stored_bytes(nest, s)) > MOST_BYTES[s.scope]:
            raise ScheduleError(
                f"{name}: its buffer of {size} bytes is too large: compute it further inside"
            )
        if (size := code_statements(nest, s)) > CODE_STATEMENTS:
            raise ScheduleError(
                f"{name}: {size} statements written out, at most {CODE_STATEMENTS}: unroll less"
            )


def registers(nest: LoopNest, s: StageNest) -> int:
    """Vector registers that accumulating in a tile takes.

    They hold its results, one row of operands and one broadcast; none where tiles do.
    """
    if s.accumulate is None or s.tiles:
        return 0
    start = s.index(s.accumulate) + 1 if s.accumulate else 0
    sizes = s.sizes_inside(start - 1, region(nest, s))
    vectors = {a.name: sizes[a.name] for a in s.stage.parallel}
    root = s.vector_root
    across = 1
    if root is not None and root in vectors:
        across = vectors[root] = ceil(vectors[root] / s.lanes)
    return prod(vectors.values()) * len(s.stage.stores) + across + 1


def code_statements(nest: LoopNest, s: StageNest) -> int:
    """Statements of a stage as written: its unrolled loops, once for each body written apart."""
    trips = s.trips(region(nest, s))
    unrolled = prod(n for loop, n in zip(s.loops, trips, strict=True) if loop.kind == "unroll")
    if s.tiles:
        unrolled = prod(tile_counts(nest, s))
    return unrolled * bodies(nest, s) * len(s.stage.stores)


def bodies(nest: LoopNest, s: StageNest) -> int:
    """How often the innermost body of a stage is written: ragged ends and peels multiply it."""
    count = 1 if s.at is None else bodies_until(nest, nest.stage(s.at[0]), s.at[1])
    return count * _own(nest, s, len(s.loops))


def bodies_until(nest: LoopNest, s: StageNest, axis: str) -> int:
    outer = 1 if s.at is None else bodies_until(nest, nest.stage(s.at[0]), s.at[1])
    return outer * _own(nest, s, s.index(axis) + 1)


def _own(nest: LoopNest, s: StageNest, end: int) -> int:
    count, whole = 1, region(nest, s)
    for k, loop in enumerate(s.loops[:end]):
        size = s.sizes_inside(k - 1, whole)[loop.root] if k else whole[loop.root]
        inner = next((x for x in s.loops[k + 1 :] if x.root == loop.root), None)
        extent = size if loop.root in s.overrun else s.stage.extents[loop.root]
        static = inner is not None and inner.kind in ("unroll", "vectorize")
        own = loop.kind in ("serial", "parallel")
        ragged = static and own and extent % loop.step and size > loop.step
        here = 1 + bool(ragged)
        if loop.border == "peel":
            here += len(bordering(nest, s, k))
        count *= here
    return count

"""Limits that hang on several steps at once: registers, code size, scratch.

The formulas are those of `limit_formulas.py`, which spaces ask of arrays of configs
(`schedules/spaces/cpu_contraction/batch.py`); what is told of a nest here is which loops they are
asked of.  A property test binds the two.
"""

from math import prod

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.borders import copies, pieces
from hlotune.schedules.ir.nest import LoopNest, StageNest, is_read_by, region, stored_bytes
from hlotune.schedules.steps.limit_formulas import (
    CODE_STATEMENTS,
    MOST_BYTES,
    bodies_of,
    has_code,
    tile_registers,
    vectors_of,
)
from hlotune.schedules.steps.tile_products import tile_counts
from hlotune.schedules.steps.tile_products import tile_registers as matrix_registers
from hlotune.schedules.steps.validate import check_form
from hlotune.schedules.targets.units import AMX_REGISTERS


def check(nest: LoopNest) -> None:
    """Raises ScheduleError where a nest passes a limit, or has a form that has no code."""
    check_form(nest)
    for s in nest.stages:
        name = s.stage.name
        _check_registers(nest, s)
        if s.tiles and (needed := matrix_registers(*tile_counts(nest, s))) > AMX_REGISTERS:
            raise ScheduleError(
                f"{name}: its tiles need {needed} registers of the matrix unit, which has "
                f"{AMX_REGISTERS}: use a smaller tile"
            )
        if (size := stored_bytes(nest, s)) > MOST_BYTES[s.scope]:
            raise ScheduleError(
                f"{name}: its buffer of {size} bytes is too large: compute it further inside"
            )
        if not has_code(size := code_statements(nest, s)):
            raise ScheduleError(
                f"{name}: {size} statements written out, at most {CODE_STATEMENTS}: unroll less"
            )


def _check_registers(nest: LoopNest, s: StageNest) -> None:
    own, others = registers(nest, s), held_meanwhile(nest, s)
    needed = own + sum(held(nest, x) for x in others)
    beside = f", with {' '.join(x.stage.name for x in others)} held meanwhile" if others else ""
    if needed > nest.target.vector_registers:
        raise ScheduleError(
            f"{s.stage.name}: the register tile needs {needed} vector registers{beside}, "
            f"the target has {nest.target.vector_registers}: use a smaller tile"
        )


def registers(nest: LoopNest, s: StageNest) -> int:
    """Vector registers that accumulating in a tile takes, for this stage alone.

    They hold its results, one row of operands and one broadcast; none where tiles do.
    """
    if s.accumulate is None or s.tiles:
        return 0
    root, tile = s.vector_root, _tile(nest, s)
    across = tile[root] if root is not None and root in tile else 1
    return int(tile_registers(prod(tile.values()) // across, across, len(s.stage.stores)))


def held(nest: LoopNest, s: StageNest) -> int:
    """Vector registers that a stage's results take while they are held; none where tiles do."""
    if s.accumulate is None or s.tiles:
        return 0
    return prod(_tile(nest, s).values()) * len(s.stage.stores)


def _tile(nest: LoopNest, s: StageNest) -> dict[str, int]:
    """Registers along each parallel axis of a stage that holds its results."""
    start = s.index(s.accumulate) + 1 if s.accumulate else 0
    sizes = s.sizes_inside(start - 1, region(nest, s))
    vectors = {a.name: sizes[a.name] for a in s.stage.parallel}
    root = s.vector_root
    if root is not None and root in vectors:
        vectors[root] = int(vectors_of(vectors[root], s.lanes))
    return vectors


def held_meanwhile(nest: LoopNest, s: StageNest) -> list[StageNest]:
    """Other stages whose results are in registers while this one is computed.

    Those that are handed over to it, those around it that hold theirs there, and those computed
    before it inside the same loops that are handed over to what is computed later.
    """
    k = next(n for n, x in enumerate(nest.stages) if x.stage.name == s.stage.name)
    later = nest.stages[k:]
    handed = [x for x in nest.stages[:k] if x.scope == "register"]
    read = [x for x in handed if any(is_read_by(x.stage, y.stage) for y in later)]
    found, inner = [x for x in read if _is_in_registers_of(x, s)], s
    while inner.at is not None:
        outer, axis = nest.stage(inner.at[0]), inner.at[1]
        around = outer.index(outer.accumulate) if outer.accumulate else -1
        if outer.accumulate is not None and around <= outer.index(axis):
            found.append(outer)
        found += [x for x in read if _is_in_registers_of(x, outer, axis)]
        inner = outer
    return found


def _is_in_registers_of(x: StageNest, outer: StageNest, axis: str = "") -> bool:
    """Whether a stage hands its results over inside a loop of another, or in one around that."""
    if x.scope != "register" or x.at is None or x.at[0] != outer.stage.name:
        return False
    return not axis or outer.index(x.at[1]) <= outer.index(axis)


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
        here = int(bodies_of(extent, loop.step, size)) if static and own else 1
        if loop.border == "peel":
            here += copies(pieces(nest, s, k), loop.step) - 1
        count *= here
    return count

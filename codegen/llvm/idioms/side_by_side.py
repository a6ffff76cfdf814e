"""Neighbouring vectors of long expressions, computed operation by operation beside each other.

    a = f(x[0:8]); b = f(x[8:16])   ->   a, b = f(x[0:16])

Each operation of a long chain waits for the one before it.  A core has a window of some hundred
operations in which it finds others meanwhile, and of floats those that wait hold places of it that
are fewer still, so that the next vector must begin within them.  LLVM has what vectors share in
registers all the same, and takes it from memory where these are few: here it is worth it.

Vectors without masks of their own hold conditions as wide as what was compared.  LLVM packs those
of several vectors into one to join them, so that expressions which do that are left alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from hlotune.codegen.llvm.points import Lane
from hlotune.codegen.llvm.unrolled_copies import Copy
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import operations
from hlotune.schedules.ir.nest import LoopNest, StageNest

MOST = 4
"""Vectors that are computed beside each other."""
LONG = {"erf", "erfc", "exponential", "exponential_minus_one", "log", "logistic", "tanh"}
"""Functions whose chains are long."""
JOINING = {
    "and", "or", "xor", "not", "atan2", "cbrt", "cosine", "is_finite", "log_plus_one", "power",
    "remainder", "sign", "sine", "tan",
}  # fmt: skip
"""Operations that join conditions, or may."""


def has_long_chains(nest: LoopNest, s: StageNest) -> bool:
    """Whether vectors of a stage are computed beside each other: where registers are many, they
    are left one behind the other, as it was not measured there."""
    stage = s.stage
    if not nest.target.has_few_registers or s.layout or s.tiles or s.overrun:
        return False
    if stage.combine is not None or stage.digits or stage.lookups or stage.ends:
        return False
    names = {x.op for x in operations(stage.values)}
    if not names & LONG or names & JOINING:
        return False
    floats = all(v.dtype == "f32" for v in stage.values)
    return floats and s.lanes * 4 == nest.target.vector_bytes and not _leaves(nest, stage)


def _leaves(nest: LoopNest, stage: Stage) -> bool:
    """Whether a load may lie outside of its tensor, or stands for something else than its place."""
    return any(
        x.along is not None or x.beside is not None or guarded(nest.compute, stage, x)
        for x in stage.loads
    )


def side_by_side(copies: Sequence[Copy]) -> tuple[Copy, ...]:
    """Copies with whole vectors that lie behind one another as one of so many lanes."""
    found = list[Copy]()
    for copy in copies:
        if found and _continues(found[-1], copy):
            last = found[-1]
            assert last.lane is not None and copy.lane is not None, "both are vectors"
            lanes = last.lane.lanes + copy.lane.lanes
            found[-1] = replace(last, lane=Lane(last.lane.root, lanes, lanes))
        else:
            found.append(copy)
    return tuple(found)


def _continues(last: Copy, copy: Copy) -> bool:
    """Whether a vector begins where the last ones end, all of them whole."""
    a, b = last.lane, copy.lane
    if a is None or b is None or copy.fences or copy.rolls:
        return False
    whole = a.active == a.lanes and b.active == b.lanes
    behind = {**last.offsets, a.root: last.offsets.get(a.root, 0) + a.lanes} == copy.offsets
    return whole and behind and a.lanes + b.lanes <= MOST * b.lanes

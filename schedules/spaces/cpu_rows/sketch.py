"""The steps of one stage, made of its loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.bodies import Level
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    ComputeAt,
    Parallel,
    Peel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
    VectorizeReduction,
)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of one stage with numbers for steps, and the names that steps give them."""

    stage: Stage
    levels: tuple[Level, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """`d0` where an axis has one loop, else `d0.0`, `d0.1`, from the outermost on."""
        roots = [x.root for x in self.levels]
        return tuple(
            root if roots.count(root) == 1 else f"{root}.{roots[:k].count(root)}"
            for k, root in enumerate(roots)
        )

    def last(self, *parts: str) -> str:
        """The innermost loop of some parts; "" where there is none."""
        found = [n for n, x in zip(self.names, self.levels, strict=True) if x.part in parts]
        return found[-1] if found else ""

    def tiles(self, roots: Sequence[str]) -> list[str]:
        """The innermost serial loop over each of some axes."""
        found = {
            x.root: name
            for name, x in zip(self.names, self.levels, strict=True)
            if x.root in roots and x.kind == "serial"
        }
        return list(found.values())

    @property
    def has_pieces(self) -> bool:
        """Whether a reduction is cut into chunks, whose results come together in memory."""
        extents = self.stage.extents
        return any(x.part == "chunk" and x.step.item() < extents[x.root] for x in self.levels)

    def of_kind(self, kind: str) -> list[str]:
        return [n for n, x in zip(self.names, self.levels, strict=True) if x.kind == kind]

    def splits(self) -> list[Step]:
        found: list[Step] = []
        for axis in self.stage.axes:
            steps = [int(x.step.item()) for x in self.levels if x.root == axis.name]
            if len(steps) > 1:
                factors = tuple(a // b for a, b in pairwise(steps))
                found.append(Split(self.stage.name, axis.name, factors))
        return found


def sums_floats(stage: Stage) -> bool:
    """Whether a stage is a sum whose error grows with its length."""
    return stage.combine is SUM and not stage.scans and any(is_float(v.dtype) for v in stage.values)


@dataclass(frozen=True, slots=True)
class Written:
    """How one stage is written."""

    loops: Loops
    form: Form
    holds: bool
    """Whether registers hold its results."""
    peeled: tuple[str, ...] = ()
    """Axes whose loops over tiles are cut at borders."""


def steps_of(nest: Nest, found: Sequence[Written]) -> tuple[Step, ...]:
    """The steps of a nest, of its anchor first and then of its members from the last to the first.

    The stages come in the nest's order.
    """
    *members, last = found
    anchor, steps = last.loops, _own(last)
    if tasks := anchor.of_kind("parallel"):
        steps.append(Parallel(anchor.stage.name, tasks[-1]))
    place = anchor.last("block")
    for member in reversed(members):
        steps.append(ComputeAt(member.loops.stage.name, nest.anchor.name, place))
        steps += _own(member)
    return tuple(steps)


def _own(written: Written) -> list[Step]:
    loops, form, name = written.loops, written.form, written.loops.stage.name
    steps = loops.splits()
    if len(loops.names) > 1:
        steps.append(Reorder(name, loops.names))
    if form.vector:
        vectorize = VectorizeReduction if form.reduces else Vectorize
        steps.append(vectorize(name, loops.names[-1]))
    steps += [Unroll(name, axis) for axis in reversed(loops.of_kind("unroll"))]
    steps += [Peel(name, axis) for axis in loops.tiles(written.peeled)]
    if written.holds:
        steps.append(Accumulate(name, loops.last("tile") or loops.last("chunk")))
        if loops.has_pieces and sums_floats(loops.stage):
            steps.append(AddUp(name))
    return steps

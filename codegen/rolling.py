"""Windows that roll along a register tile: what neighbouring outputs share is loaded once.

Copies of a sum come step by step of the reduction, and each step loads its row of the window anew.
Where every multiply-add waits for a load of its own, as in depthwise convolutions, they are taken
element by element of the image instead: a vector is multiplied with all taps that meet it while it
is in a register, and the taps stay in theirs.  Each sum adds up its terms in the same order.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby

from hlotune.codegen.copies import Copy
from hlotune.codegen.forms import constants_of
from hlotune.schedules.expr import Load
from hlotune.schedules.nest import StageNest
from hlotune.schedules.tiles import BUSY_PORTS

WORTH = 0.8
"""Share of the loads that may be left."""
Constants = tuple[int, ...]
Element = tuple[int, Constants]
"""What is loaded: by which load of the stage, and where."""


@dataclass(frozen=True, slots=True)
class Order:
    copies: tuple[Copy, ...]
    loads: int
    registers: int
    """For sums, taps, and what is loaded at a time."""


def rolled(copies: tuple[Copy, ...], s: StageNest, registers: int) -> tuple[Copy, ...]:
    """The copies in the order of fewest loads whose values fit into the registers."""
    if s.accumulate is None or s.stage.combine != "sum":
        return copies
    loads = _loads(copies, s)
    if loads < BUSY_PORTS * len(copies):
        return copies
    found = (x for way in _ways(copies, s) if (x := _order(copies, way)) is not None)
    fitting = [x for x in found if x.registers <= registers and x.loads <= WORTH * loads]
    return min(fitting, key=lambda x: x.loads).copies if fitting else copies


@dataclass(frozen=True)
class _Way:
    """How to take the copies of a stage: by what its windows share along some reductions."""

    s: StageNest
    along: frozenset[str]
    """The reductions."""
    apart: tuple[str, ...]
    """Axes that are walked step by step around them."""

    @cached_property
    def windows(self) -> dict[int, Load]:
        """By position among the loads of the stage."""
        beside = [a.name for a in self.s.stage.parallel]
        loads = enumerate(self.s.stage.loads)
        return {k: x for k, x in loads if any(_moves(x, r, beside) for r in self.along)}

    def step(self, copy: Copy) -> Constants:
        at = _at(copy, self.s)
        return tuple(at[a] for a in self.apart)

    def element(self, copy: Copy) -> Constants:
        """Where a copy meets its windows, larger as the reductions go on."""
        at = _at(copy, self.s)
        return tuple(
            -constant if any(n < 0 and a in self.along for a, n in e.terms) else constant
            for x in self.windows.values()
            for e, constant in zip(x.index, constants_of(x.index, at), strict=True)
            if self.along & set(e.coefficients)
        )


def _ways(copies: Sequence[Copy], s: StageNest) -> Iterator[_Way]:
    """Along all sets of reductions whose windows overlap in neighbouring copies.

    Neighbours beside the windows, which share taps alone, are taken together or one by one.
    """
    several = {a for c in copies for a, n in c.offsets.items() if n}
    parallel = [a.name for a in s.stage.parallel]
    beside = [a for a in parallel if a in several]
    reduce = [r.name for r in s.stage.reduce if r.name in several]
    windowed = [r for r in reduce if _any_moves(s, [r], parallel)]
    for along in (x for n in range(len(windowed)) for x in combinations(windowed, n + 1)):
        if not _any_moves(s, along, beside):
            continue
        rest = tuple(r for r in reduce if r not in along)
        yield _Way(s, frozenset(along), rest)
        others = tuple(a for a in beside if not _any_moves(s, along, [a]))
        if others:
            yield _Way(s, frozenset(along), (*rest, *others))


def _any_moves(s: StageNest, along: Iterable[str], beside: Collection[str]) -> bool:
    return any(_moves(x, r, beside) for x in s.stage.loads for r in along)


def _moves(x: Load, reduction: str, beside: Collection[str]) -> bool:
    """Whether a window along a reduction moves with one of the axes beside it."""
    return any(
        reduction in e.coefficients and any(a in e.coefficients for a in beside) for e in x.index
    )


def _order(copies: Sequence[Copy], way: _Way) -> Order | None:
    """None where a sum would add up its terms in another order."""
    steps = dict[Constants, list[Copy]]()
    for copy in copies:
        steps.setdefault(way.step(copy), []).append(copy)
    ordered, loads, taps, most = list[Copy](), 0, 0, 0
    for step in steps.values():
        step.sort(key=way.element)
        parts = [list(part) for _, part in groupby(step, key=way.element)]
        own = [len(_loaded(p, way.s, way.windows)) for p in parts]
        shared = len(_loaded(step, way.s)) - len(_loaded(step, way.s, way.windows))
        loads, taps, most = loads + shared + sum(own), max(taps, shared), max(most, *own)
        ordered += _fenced(parts)
    terms = _terms(copies, way.s)
    if _terms(ordered, way.s) != terms:
        return None
    return Order(tuple(ordered), loads, len(terms) + taps + most)


def _fenced(parts: Sequence[Sequence[Copy]]) -> Iterator[Copy]:
    """A fence ahead of all; ahead of each element one that lets the taps through."""
    for n, part in enumerate(parts):
        yield replace(part[0], fences=int(n == 0), rolls=n > 0)
        yield from (replace(copy, fences=0) for copy in part[1:])


def _at(copy: Copy, s: StageNest) -> dict[str, int]:
    return dict.fromkeys(s.stage.extents, 0) | dict(copy.offsets)


def _loaded(
    copies: Iterable[Copy], s: StageNest, only: Collection[int] | None = None
) -> set[Element]:
    """By all loads of the stage, or by some."""
    loads = [(k, x.index) for k, x in enumerate(s.stage.loads) if only is None or k in only]
    return {
        (k, tuple(constants_of(index, at)))
        for at in (_at(copy, s) for copy in copies)
        for k, index in loads
    }


def _terms(copies: Sequence[Copy], s: StageNest) -> dict[Constants, list[Constants]]:
    """For each sum its terms, in order."""
    found = dict[Constants, list[Constants]]()
    for at in (_at(copy, s) for copy in copies):
        own = tuple(at[a.name] for a in s.stage.parallel)
        found.setdefault(own, []).append(tuple(at[r.name] for r in s.stage.reduce))
    return found


def _loads(copies: Sequence[Copy], s: StageNest) -> int:
    """Of copies as they come: each step of the reduction loads what it needs."""
    steps: list[list[Copy]] = []
    for copy in copies:
        if copy.fences or not steps:
            steps.append([])
        steps[-1].append(copy)
    return sum(len(_loaded(step, s)) for step in steps)

"""Windows that roll along a register tile: what neighbouring outputs share is loaded once.

Copies of a sum come step by step of the reduction, and each step loads its row of the window anew.
Where loads delay the multiply-adds, as in depthwise convolutions, which have one each, copies are
taken element by element of the image instead: a vector is multiplied with all taps that meet it
while it is in a register, and the taps stay in theirs.  Each sum adds up its terms in the same
order.  Reductions beside the windows stand around them, or no order is found.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby

from hlotune.codegen.llvm.access_forms import constants_of
from hlotune.codegen.llvm.unrolled_copies import Copy
from hlotune.schedules.ir.borders import index_ranges
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import StageNest
from hlotune.schedules.targets.machine_rates import COMMON, MachineRates

WORTH = 0.8
"""Share of the loads that may be left."""
Place = tuple[int, ...]
Element = tuple[int, Place]
"""What is loaded: by which load of the stage, and where."""


@dataclass(frozen=True, slots=True)
class _Met:
    """A copy, and what it meets."""

    copy: Copy
    at: Mapping[str, int]
    loaded: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class _Order:
    copies: tuple[Copy, ...]
    loads: int
    registers: int
    """The registers for sums, for taps, and for what is loaded at a time."""


def rolled(
    copies: tuple[Copy, ...], s: StageNest, registers: int, rates: MachineRates = COMMON
) -> tuple[Copy, ...]:
    """The copies in the order of fewest loads whose values fit into the registers.

    Of orders with as many loads, that of fewest registers.
    """
    if s.accumulate is None or s.stage.combine is not SUM or s.stage.scans:
        return copies
    ways = [*_ways(copies, s)] if _waits(copies, s, rates.busy_ports) else []
    met = [_met(copy, s) for copy in copies] if ways else []
    loads, terms = _loads_in_steps(met), _terms(met, s)
    found = [x for way in ways if (x := _order(met, way, terms)) is not None]
    fitting = [x for x in found if x.registers <= registers and x.loads <= WORTH * loads]
    return min(fitting, key=lambda x: (x.loads, x.registers)).copies if fitting else copies


def _waits(copies: Sequence[Copy], s: StageNest, busy_ports: float) -> bool:
    """Whether loads delay the multiply-adds, by the first step of the reduction: all are alike."""
    end = next((n for n, x in enumerate(copies) if n and x.fences), len(copies))
    return _loads_in_steps(_met(x, s) for x in copies[:end]) >= busy_ports * end


def _met(copy: Copy, s: StageNest) -> _Met:
    at = dict.fromkeys(index_ranges(s.stage), 0) | dict(copy.offsets)
    loads = enumerate(s.stage.loads)
    return _Met(copy, at, tuple((k, tuple(constants_of(x.index, at))) for k, x in loads))


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

    @cached_property
    def _signs(self) -> list[tuple[int, int, int]]:
        """Load, dimension, and -1 where its places go down as the reductions go on."""
        return [
            (k, d, -1 if any(n < 0 and a in self.along for a, n in e.terms) else 1)
            for k, x in self.windows.items()
            for d, e in enumerate(x.index)
            if self.along & set(e.coefficients)
        ]

    def step(self, x: _Met) -> Place:
        return tuple(x.at[a] for a in self.apart)

    def element(self, x: _Met) -> Place:
        """Where a copy meets its windows, larger as the reductions go on."""
        return tuple(sign * x.loaded[k][1][d] for k, d, sign in self._signs)


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


def _order(met: Sequence[_Met], way: _Way, terms: Mapping[Place, Sequence[Place]]) -> _Order | None:
    """None where a sum would add up its terms in another order."""
    steps = dict[Place, list[_Met]]()
    for x in met:
        steps.setdefault(way.step(x), []).append(x)
    ordered, loads, taps, most = list[list[_Met]](), 0, 0, 0
    for step in steps.values():
        step.sort(key=way.element)
        parts = [list(part) for _, part in groupby(step, key=way.element)]
        own = [len({e for x in p for e in x.loaded if e[0] in way.windows}) for p in parts]
        shared = len({e for x in step for e in x.loaded if e[0] not in way.windows})
        loads, taps, most = loads + shared + sum(own), max(taps, shared), max(most, *own)
        ordered += parts
    if _terms([x for part in ordered for x in part], way.s) != terms:
        return None
    first = {id(step[0]) for step in steps.values()}
    return _Order(tuple(_fenced(ordered, first)), loads, len(terms) + taps + most)


def _fenced(parts: Sequence[Sequence[_Met]], first: Collection[int]) -> Iterator[Copy]:
    """A fence ahead of each step; ahead of other elements one that lets the taps through."""
    for part in parts:
        begins = id(part[0]) in first
        yield replace(part[0].copy, fences=int(begins), rolls=not begins)
        yield from (replace(x.copy, fences=0) for x in part[1:])


def _terms(met: Iterable[_Met], s: StageNest) -> dict[Place, list[Place]]:
    """For each sum its terms, in order."""
    parallel, reduce = ([a.name for a in axes] for axes in (s.stage.parallel, s.stage.reduce))
    found = dict[Place, list[Place]]()
    for x in met:
        own, term = (tuple(x.at[a] for a in names) for names in (parallel, reduce))
        found.setdefault(own, []).append(term)
    return found


def _loads_in_steps(met: Iterable[_Met]) -> int:
    """The loads of copies as they come: each step of the reduction loads what it needs."""
    total, step = 0, set[Element]()
    for x in met:
        if x.copy.fences:
            total, step = total + len(step), set()
        step.update(x.loaded)
    return total + len(step)

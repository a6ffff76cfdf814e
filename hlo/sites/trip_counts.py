"""How often loops and branches of a program run: by their counters, or as a user says."""

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hlotune.hlo.graph import Graph
from hlotune.hlo.sites.scopes import CONTROL_FLOW, LOOP, Scope
from hlotune.hlo.sites.simulated_loops import simulated_trips
from hlotune.schedules.errors import ProgramError

SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE", "EQ": "EQ"}
"""A comparison with its operands in the other order."""
HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "NE": operator.ne, "EQ": operator.eq,
}  # fmt: skip
ALL_LOOPS = ""
"""Whose trips are told without a name: loops that do not say it themselves."""


class Flow(NamedTuple):
    """A loop or a choice between branches."""

    name: str
    """`while0`, `if0`, `case0`: numbered by kind in the order of the program, loops in front of
    what is in them."""
    runs: tuple[float, ...]
    """How often each region runs each time that the operation is reached."""
    why: str
    """Where that is from: `its counter`, `told`, or `not evident`."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A loop variable that starts at `first`, changes by `step`, and is compared with `limit`."""

    first: int
    step: int
    direction: str
    limit: int

    @property
    def trips(self) -> int | None:
        """How often the loop runs; None where it would never end."""
        holds = HOLDS[self.direction]
        if not holds(self.first, self.limit):
            return 0
        if self.direction == "EQ":
            return None if self.step == 0 else 1
        distance = self.limit - self.first
        is_upward = distance > 0 if self.direction == "NE" else self.direction in ("LT", "LE")
        if self.step == 0 or is_upward != (self.step > 0):
            return None
        trips, rest = divmod(abs(distance), abs(self.step))
        if self.direction == "NE":
            return None if rest else trips
        return trips + 1 if rest or self.direction in ("LE", "GE") else trips


def flows(graph: Graph, told: Mapping[str, tuple[float, ...]]) -> dict[tuple[int, ...], Flow]:
    """Loops and choices of a program by their place, (operation, region, ..., operation).

    Args:
        told: by name, what a user says: the trips of a loop, or the share of each branch.

    Raises:
        ProgramError: a name is of no loop or choice, or has another number of branches.
    """
    found: dict[tuple[int, ...], Flow] = {}
    numbers = dict.fromkeys(CONTROL_FLOW, 0)
    for scope, i in _places(Scope(graph)):
        op = scope.graph.ops[i]
        name = f"{op.name.partition('.')[2]}{numbers[op.name]}"
        numbers[op.name] += 1
        found[*scope.path, i] = _flow(scope, i, name, told)
    known = {flow.name for flow in found.values()}
    for name in told:
        if name not in known and name != ALL_LOOPS:
            raise _unknown(name, known)
    return found


def _unknown(name: str, known: Collection[str]) -> ProgramError:
    if not known:
        return ProgramError(
            "expected no trips of loops nor shares of branches, as the program has neither loops "
            f"nor branches, got those of {name!r}; leave that out"
        )
    return ProgramError(
        f"expected trips of {', '.join(sorted(known))}, got {name!r}; `tune kernels` lists loops "
        "and branches"
    )


def _places(scope: Scope) -> Iterator[tuple[Scope, int]]:
    for i, op in enumerate(scope.graph.ops):
        if op.name in CONTROL_FLOW:
            yield scope, i
            for region in scope.regions_of(i):
                yield from _places(region)


def _flow(scope: Scope, i: int, name: str, told: Mapping[str, tuple[float, ...]]) -> Flow:
    op = scope.graph.ops[i]
    if op.name == LOOP:
        trips = trips_of(scope, i)
        said = told.get(name) or (told.get(ALL_LOOPS) if trips is None else None)
        if said is not None:
            _check(name, said, 1, "a loop has one number")
            return Flow(name, (said[0], said[0]), "told")
        runs = 1.0 if trips is None else float(trips)
        return Flow(name, (runs, runs), "not evident" if trips is None else "its counter")
    branches = len(op.regions)
    if said := told.get(name):
        _check(name, said, branches, "give the share of each branch")
        return Flow(name, said, "told")
    return Flow(name, (1 / branches,) * branches, "not evident")


def _check(name: str, said: tuple[float, ...], count: int, advice: str) -> None:
    if len(said) != count or not all(x >= 0 and math.isfinite(x) for x in said):
        got = ",".join(f"{x:g}" for x in said)
        raise ProgramError(
            f"expected {count} number{'s' * (count > 1)} from zero on for {name}, got {got}; "
            f"{advice}"
        )


def trips_of(scope: Scope, operation: int) -> int | None:
    """How often a loop runs; None where that depends on data."""
    counter = _counter(scope, operation)
    return simulated_trips(scope, operation) if counter is None else counter.trips


def _counter(scope: Scope, operation: int) -> Counter | None:
    """The counter of a loop whose condition compares a constant with a variable that begins at a
    constant and changes by one."""
    op = scope.graph.ops[operation]
    condition, body = scope.regions_of(operation)
    test = condition.producer(condition.graph.results[0])
    if test is None or test.name != "stablehlo.compare":
        return None
    direction, (left, right) = str(test["comparison_direction"]), test.operands
    orders = ((left, right, direction), (right, left, SWAPPED[direction]))
    for counter, limit, sense in orders:
        position = condition.carried(counter)
        bound = _integer(condition, limit)
        if position is None or bound is None:
            continue
        first, step = _integer(scope, op.operands[position]), _step(body, position)
        if first is not None and step is not None:
            return Counter(first, step, sense, bound)
    return None


def _step(body: Scope, position: int) -> int | None:
    """What one trip adds to a loop variable."""
    change = body.producer(body.graph.results[position])
    before = body.graph.arguments[position]
    if change is None or before not in change.operands:
        return None
    if change.name == "stablehlo.add":
        other = change.operands[1] if change.operands[0] == before else change.operands[0]
        return _integer(body, other)
    if change.name == "stablehlo.subtract" and change.operands[0] == before:
        step = _integer(body, change.operands[1])
        return None if step is None else -step
    return None


def _integer(scope: Scope, value: int) -> int | None:
    literal = scope.literal(value)
    if literal is None or literal.type.elements != 1 or literal.type.dtype[0] not in "iu":
        return None
    return int(literal.array().reshape(-1)[0])

"""Candidates of one case: compiled ahead in parallel, verified and timed one after another."""

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.device.cases import Case, as_json
from benchmarks.device.child import Child, ChildFailed
from benchmarks.device.crew import ERROR_CHARACTERS, Crew
from benchmarks.device.records import Results, Row
from hlotune.schedules.spaces.gpu.space import Configs, GpuSpace

FIRST_GUESSES = 12
"""So many guesses of the roofline come before neighbours of the best are tried."""
MOST_GUESSES = 200
COMPILE_S = 60.0
CHAMPIONS = 3
MOST_LOST, MOST_WRONG = 2, 8
"""Candidates of a sketch that cost a child, or were wrong and none right, until it is left out."""


@dataclass
class Outcomes:
    """What became of each sketch's candidates in a run, so that broken ones do not use it up."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    """Candidates whose child died or did not answer."""

    def add(self, sketch: str, outcome: Row, lost: bool) -> None:
        kind = self.right if outcome["right"] else self.lost if lost else self.wrong
        kind[sketch] += 1

    def given_up(self, sketch: str) -> bool:
        """Whether no more of it are tried: each that is lost costs as much as a whole case."""
        never_right = self.right[sketch] == 0 and self.wrong[sketch] >= MOST_WRONG
        return never_right or self.lost[sketch] >= MOST_LOST


@dataclass
class Trials:
    """Looks for good schedules of a case until its time is over."""

    crew: Crew
    results: Results
    device: str
    case: Case
    space: GpuSpace
    until: float
    """By the monotonic clock."""
    outcomes: Outcomes
    found: list[tuple[float, Configs]] = field(default_factory=list)

    def run(self) -> None:
        """First guesses, then neighbours of the best, as long as there are new ones.

        Where earlier runs measured the first guesses, as many more are made.
        """
        taken: set[bytes] = set()
        known = sum(self.results.holds(self.row(c)) for c in self.space.propose(MOST_GUESSES))
        offered = list(self.space.propose(known + FIRST_GUESSES))
        while offered and time.monotonic() < self.until:
            taken |= {c.tobytes() for c in offered}
            for config, seconds in self._measured(offered):
                self.found.append((seconds, config))
            self.found.sort(key=lambda pair: pair[0])
            offered = [c for c in self._near() if c.tobytes() not in taken]

    def champions(self) -> list[tuple[str, Row]]:
        """The fastest, with names to be held by, and the questions that load them."""
        best = [config for _, config in self.found[:CHAMPIONS]]
        return [(f"hlotune_{n}", self._question(self.row(c))) for n, c in enumerate(best)]

    def row(self, config: Configs) -> Row:
        sketch, knobs = self.space.named(config)
        return {**about(self.device, self.case, "hlotune"), "sketch": sketch, "knobs": knobs}

    def _near(self) -> Sequence[Configs]:
        return list(self.space.neighbours(self.found[0][1])) if self.found else []

    def _measured(self, configs: Sequence[Configs]) -> Iterator[tuple[Configs, float]]:
        rows = [self.row(config) for config in configs]
        waiting = [n for n, row in enumerate(rows) if not self.results.holds(row)]
        for n in sorted(set(range(len(rows))) - set(waiting)):
            known = self.results.seconds(rows[n])
            if known is not None:
                yield configs[n], known
        for n, compiled in self._compiled(rows, waiting):
            if self.outcomes.given_up(rows[n]["sketch"]):
                continue
            outcome = compiled
            if "error" not in compiled:
                asked = self._question(rows[n])
                outcome = {**compiled, **self.crew.trial(self.case, asked)}
            lost = "error" not in compiled and not self.crew.measuring.running
            self.outcomes.add(rows[n]["sketch"], outcome, lost)
            self.results.add({**rows[n], **outcome})
            if outcome["right"]:
                yield configs[n], outcome["seconds"]

    def _compiled(self, rows: Sequence[Row], waiting: list[int]) -> Iterator[tuple[int, Row]]:
        """Numbers of rows as they are compiled, with what compiling took or why it failed."""
        busy: dict[int, Child] = {}
        idle = list(self.crew.compiling)
        while (waiting or busy) and time.monotonic() < self.until:
            while waiting and idle:
                if self.outcomes.given_up(rows[waiting[0]]["sketch"]):
                    waiting.pop(0)
                    continue
                busy[waiting[0]] = idle.pop()
                busy[waiting[0]].send(self._question(rows[waiting[0]]))
                waiting.pop(0)
            for n, child in list(busy.items()):
                if child.ready(0.01) or time.monotonic() - child.asked_s > COMPILE_S:
                    idle.append(busy.pop(n))
                    yield n, _answer(child)
        for child in busy.values():
            with contextlib.suppress(ChildFailed):
                child.answer(COMPILE_S)

    def _question(self, row: Row) -> dict[str, Any]:
        asked = {name: row[name] for name in ("kernel", "sketch", "knobs")}
        name = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        file = str(self.crew.scratch / name)
        return {**asked, "do": "candidate", "interpret": self.crew.interpret, "file": file}


def _answer(child: Child) -> Row:
    try:
        return child.answer(1.0)
    except ChildFailed as failure:
        return {"right": False, "error": str(failure)[-ERROR_CHARACTERS:]}


def about(device: str, case: Case, how: str) -> Row:
    """What a row is about."""
    kernel = as_json(case.kernel)
    return {"what": "time", "device": device, "case": case.name, "how": how, "kernel": kernel}


def median(values: Sequence[float]) -> float:
    return float(np.median(values))

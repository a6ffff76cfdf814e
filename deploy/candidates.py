"""Candidates that one machine proposes and another one measures, as files of JSON lines.

A line has a kernel, its schedules, and for which device they are.  What measures them needs no
database and no cost model: it writes records as lines, which `tune db import` reads.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from hlotune.codegen.built import Built
from hlotune.deploy.pairs import Referee
from hlotune.deploy.pairs import compared as in_turns
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.devices import target_here
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import (
    CacheMode,
    Candidate,
    Failure,
    Measurement,
    Trial,
    require_settings,
)
from hlotune.schedules.errors import ProgramError, TargetError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.kinds import stored, target_of
from hlotune.schedules.targets.target import Properties, Target
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.lines import Written

FORMAT = 1
"""The version of the lines, as `"hlotune_candidates": 1`."""
PAIRS, TIMING_S = 31, 10.0
"""Pairs of the fastest candidate and the default, timed in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Candidates of one kernel."""

    target: Target
    kernel: Kernel
    label: str
    flops: int
    dtype: str
    numerics: Numerics
    cache: CacheMode
    schedules: tuple[Schedule, ...]

    def to_json(self) -> str:
        """One line, without its end."""
        data = {
            "hlotune_candidates": FORMAT,
            "target": stored(self.target),
            "kernel": {"text": self.kernel.text, "label": self.label},
            "flops": self.flops,
            "dtype": self.dtype,
            "numerics": self.numerics,
            "cache": self.cache,
            "schedules": [json.loads(s.to_json()) for s in self.schedules],
        }
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> "Proposed":
        """Raises KeyError, TypeError or ValueError where the line is none of this version."""
        data = json.loads(line)
        if data["hlotune_candidates"] != FORMAT:
            raise ValueError(f"it is of format {data['hlotune_candidates']!r}, not {FORMAT}")
        require_settings(data["numerics"], data["cache"])
        return Proposed(
            target=target_of(data["target"]),
            kernel=Kernel(_text(data["kernel"]["text"])),
            label=_text(data["kernel"]["label"]),
            flops=int(data["flops"]),
            dtype=_text(data["dtype"]),
            numerics=data["numerics"],
            cache=data["cache"],
            schedules=tuple(Schedule.from_json(json.dumps(s)) for s in data["schedules"]),
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.60}")
    return value


def read_candidates(path: Path) -> tuple[Proposed, ...]:
    """All lines of a file, which are for one target.

    Raises ProgramError where the file cannot be read, or is none of `tune export-candidates`.
    """
    try:
        lines = [x for x in path.read_text(encoding="utf-8").splitlines() if x.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProgramError(
            f"expected candidates in {path}, got {reason}; check the path"
        ) from error
    found = tuple(_read(path, n, line) for n, line in enumerate(lines, 1))
    if len({p.target for p in found}) != 1:
        raise ProgramError(
            f"expected candidates for one target in {path}, got {len({p.target for p in found})} "
            "targets; write the file with `tune export-candidates`"
        )
    return found


def _read(path: Path, number: int, line: str) -> Proposed:
    try:
        return Proposed.from_json(line)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ProgramError(
            f"expected candidates in line {number} of {path}, got {said}; write the file with "
            "`tune export-candidates`"
        ) from error


class Runner(Referee, Protocol):
    """The part of a runner that measuring candidates needs."""

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode,
    ) -> list[Trial]: ...

    def properties(self) -> Properties: ...


NOT_BUILT = Failure("schedule", "the default compiler's kernel is not built")
_Right = tuple[Candidate, Built, Measurement]
Build = Callable[[Sequence[Candidate]], list[Built | Failure]]


def here(proposed: Sequence[Proposed]) -> Target:
    """The target of all candidates as it is found on this machine.

    Raises TargetError where it is not here.
    """
    wanted = proposed[0].target
    try:
        return target_here(wanted)
    except TargetError as error:
        raise TargetError(
            f"expected the device that the candidates are for, {wanted.title}: {error}"
        ) from error


def measured(
    proposed: Sequence[Proposed],
    target: Target,
    build: Build,
    runner: Runner,
    tell: Callable[[str], object] = lambda text: None,
    together: int = 1,
) -> Iterator[dict[str, Any]]:
    """Records of the default and of all candidates of each kernel, and of what was decided.

    The runner is given so many candidates `together` as it has devices.  `tell` is told what comes
    of each kernel, in words.
    """
    numbers = count()
    for one in proposed:
        writing = _written(one, target, runner.properties())
        candidates = [Candidate(one.kernel, s) for s in (DEFAULT, *one.schedules)]
        builts: list[Built | Failure] = [NOT_BUILT, *build(candidates[1:])]
        right: list[_Right] = []
        objects = list(zip(candidates, builts, strict=True))
        for start in range(0, len(objects), together):
            some = objects[start : start + together]
            trials = runner.measure(one.kernel, some, cache=one.cache)
            for (candidate, built), trial in zip(some, trials, strict=True):
                yield writing.trial(trial, one.label, next(numbers))
                if isinstance(built, Built) and isinstance(trial.outcome, Measurement):
                    right.append((candidate, built, trial.outcome))
        if not right:
            tell(f"{one.label}: none of {len(one.schedules)} candidates worked")
            continue
        final = _final(one, runner, *min(right, key=lambda x: x[2].time_s))
        if final is not None:
            tell(f"{one.label}: {final.outcome}, {final.paired.speedup:.2f}x the default")
            yield writing.final(final, one.kernel, one.label)


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Writes records as they come, so that those before an interruption stay; how many there were.

    Raises ProgramError where the file cannot be written.
    """
    number = 0
    try:
        with path.open("w", encoding="utf-8") as out:
            for record in records:
                out.write(json.dumps(record, separators=(",", ":")) + "\n")
                out.flush()
                number += 1
    except OSError as error:
        raise ProgramError(
            f"expected to write records to {path}, got {error.strerror or error}; "
            "name another path, or free some space"
        ) from error
    return number


def _written(one: Proposed, target: Target, properties: Properties) -> Written:
    run = {
        "id": rows.new_id(),
        "cache": one.cache,
        "threads": target.host_threads,
        "numerics": one.numerics,
        "options": rows.dumps({"searcher": "carried"}),
        "seed": 0,
        "started": rows.now(),
    }
    return Written(target=target, toolchain=toolchain(), properties=properties, run=run)


def _final(
    one: Proposed, runner: Referee, candidate: Candidate, built: Built, found: Measurement
) -> Final | None:
    """The fastest candidate against the default; None where they could not be timed in turns."""
    paired = in_turns(runner, candidate, built, pairs=PAIRS, limit_s=TIMING_S)
    if isinstance(paired, Failure):
        return None
    return Final(
        schedule=candidate.schedule,
        numerics=found.numerics,
        paired=paired,
        outcome="tuned" if paired.low > 1 else "kept default",
        margin=paired.low - 1.0,
        flops=one.flops,
        dtype=one.dtype,
        code=built.key,
    )

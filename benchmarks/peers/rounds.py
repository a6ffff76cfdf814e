"""One case, all contestants in turns: prepare, hold results against each other, time.

A turn is some unmeasured calls and then as many measured ones as fill a few milliseconds; its time
is their median.  Each round gives every form one turn, every other round goes backwards, so what
the machine does meanwhile meets all of them.  A turn during which the host had put the threads on
one core is taken again, whoever's it is, as long as they come apart and for `TRIES` turns in all.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.jax_operations import inputs_of
from benchmarks.operations import Array, Operation
from benchmarks.peers.contestants import Weights
from benchmarks.peers.process import Refusal, Worker
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.timing.timing import Apart, always_apart, settled

TOLERANCE = {"f32": 2e-5, "bf16": 2e-2, "int8": 0.0}
"""Largest difference from the default's result, as a share of its largest element."""
TRIES = 4
SPINNING_S = 0.02
"""After a turn, for threads that still look for work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    rounds: int = 9
    warm_s: float = 6e-3
    """How long calls that are not measured go on, at the beginning of a turn."""
    sample_s: float = 12e-3
    case_s: float = 15.0
    """No further round after this, once there are `least_rounds`."""
    least_rounds: int = 3
    prepare_limit_s: float = 1200.0
    """Some compile, and search while they do."""
    turn_limit_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Turns:
    """Seconds of a blocking call, one value a round."""

    call_s: tuple[float, ...]
    calls: int


Outcome = Turns | Refusal


@dataclass(frozen=True, slots=True)
class Entry:
    """One form of one contestant."""

    worker: Worker
    form: str

    @property
    def label(self) -> str:
        return f"{self.worker.contestant.name} {self.form}"

    @property
    def rows(self) -> tuple[Weights, ...]:
        return self.worker.contestant.forms[self.form]


def entries(workers: Sequence[Worker], operation: Operation) -> list[Entry]:
    """All forms; without those for constants where the operation has none."""
    return [
        Entry(worker, form)
        for worker in workers
        for form, rows in worker.contestant.forms.items()
        if operation.has_weights or ("arguments" in rows and form != "constants")
    ]


def measured(
    case: str,
    operation: Operation,
    workers: Sequence[Worker],
    effort: Effort,
    apart: Apart = always_apart,
) -> dict[str, Outcome]:
    """The outcomes of all forms by label; the results of the others are compared with that of the
    first entry.
    """
    found = entries(workers, operation)
    refused = prepared(case, operation, found, effort)
    with alone():  # not before: some measure while they prepare
        timed = turns([e for e in found if e.label not in refused], effort, apart)
    for worker in workers:
        worker.ask({"do": "drop"}, effort.turn_limit_s)
    return {e.label: timed[e.label] if e.label in timed else refused[e.label] for e in found}


def prepared(
    case: str, operation: Operation, found: Sequence[Entry], effort: Effort
) -> dict[str, Refusal]:
    """The entries that are not ready, or wrong."""
    with TemporaryDirectory() as folder:
        written(operation, Path(folder) / "inputs.npz")
        answers = {
            entry.label: entry.worker.ask(
                request(case, operation, entry, Path(folder), place), effort.prepare_limit_s
            )
            for place, entry in enumerate(found)
        }
        refused = {label: a for label, a in answers.items() if isinstance(a, Refusal)}
        results = {
            entry.label: np.load(Path(folder) / f"{place}.npy")
            for place, entry in enumerate(found)
            if entry.label not in refused
        }
    return refused | wrong(operation, results)


def written(operation: Operation, path: Path) -> None:
    weights, x = inputs_of(operation)
    if operation.element == "bf16":  # a type that NumPy's files have not
        weights, x = weights.astype(np.float32), x.astype(np.float32)
    np.savez(path, weights=weights, x=x)


def request(
    case: str, operation: Operation, entry: Entry, folder: Path, place: int
) -> dict[str, Any]:
    return {
        "do": "prepare",
        "label": entry.label,
        "case": case,
        "kind": type(operation).__name__,
        "operation": asdict(operation),  # type: ignore[call-overload]
        "form": entry.form,
        "inputs": str(folder / "inputs.npz"),
        "result": str(folder / f"{place}.npy"),
    }


def wrong(operation: Operation, results: Mapping[str, Array]) -> dict[str, Refusal]:
    """Results that are not the first one's."""
    if not results:
        return {}
    labels = list(results)
    reference, tolerance = results[labels[0]], TOLERANCE[operation.element]
    compared = {label: difference(reference, results[label]) for label in labels[1:]}
    return {
        label: Refusal("wrong_result", f"differs from {labels[0]} by {found:.2g} of the largest")
        for label, found in compared.items()
        if not found <= tolerance
    }


def difference(expected: Array, found: Array) -> float:
    """The largest, as a share of the largest element; infinite where shapes differ."""
    if expected.shape != found.shape:
        return float("inf")
    wide = expected.astype(np.float64)
    return float(np.abs(wide - found).max() / np.abs(wide).max())


def turns(
    found: Sequence[Entry], effort: Effort, apart: Apart = always_apart
) -> dict[str, Outcome]:
    """One that fails has no further turns."""
    start = time.monotonic()
    times: dict[str, list[float]] = {entry.label: [] for entry in found}
    calls: dict[str, int] = {}
    refused: dict[str, Refusal] = {}
    for number in range(effort.rounds):
        if number >= effort.least_rounds and time.monotonic() - start > effort.case_s:
            break
        for entry in found if number % 2 == 0 else reversed(found):
            if entry.label in refused:
                continue
            answer = steady_turn(entry, effort, apart)
            if isinstance(answer, Refusal):
                refused[entry.label] = answer
            else:
                times[entry.label].append(answer["call_s"])
                calls[entry.label] = answer["calls"]
    done: dict[str, Outcome] = {
        label: Turns(tuple(values), calls[label])
        for label, values in times.items()
        if label not in refused
    }
    return done | refused


def steady_turn(entry: Entry, effort: Effort, apart: Apart) -> dict[str, Any] | Refusal:
    """A turn with each thread on a core of its own, where that can be had within a few tries.

    The probe cannot tell a thread that still looks for work from threads on one core, but those
    stay so for a tenth of a second.
    """
    for _ in range(TRIES):
        found = settled(apart)
        answer = turn(entry, effort)
        if not found or settled(apart, SPINNING_S):
            break
    return answer


def turn(entry: Entry, effort: Effort) -> dict[str, Any] | Refusal:
    asked = {"label": entry.label, "warm_s": effort.warm_s, "sample_s": effort.sample_s}
    return entry.worker.ask({"do": "time", **asked}, effort.turn_limit_s)

"""One model: tuned, prepared by everybody, held against XLA's results, and timed in turns."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.kernels.measuring import furthest
from benchmarks.models import networks
from benchmarks.models.contestants import NUDGED, OURSELVES, PEERS_OF_MODELS, XLA, Peer
from benchmarks.models.examples import Example
from benchmarks.models.formats import made
from benchmarks.models.kept import Line, timed
from benchmarks.models.tuning import FOLDER, Tuning, tuned_apart
from benchmarks.operations import Array
from benchmarks.peers.arena import versions
from benchmarks.peers.process import Refusal, Worker
from benchmarks.peers.rounds import Effort, Entry, Turns, turn, turns
from hlotune.deploy.conditioning import TIMES_MOVED
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.timing.timing import Apart

EFFORT = Effort(rounds=15, warm_s=0.02, sample_s=0.15, case_s=55.0, prepare_limit_s=400.0)
LONG_S = 1.0
"""A call that takes longer needs none before it that is not measured."""
LONGEST_S = 240.0
"""The limit of one turn."""
TOLERANCE = 1e-3
"""The largest difference from XLA's result, as a share of the largest element."""
TOLERANCE_OF_STEPS = 1e-2
"""The same of a training step, as the norm of the difference over the norm: Adam divides gradients
by their size, so those that are all rounding count as much as others."""

MOST_MOVED = 0.1
"""No result may be further off than this, however far XLA's own moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Everything that models share."""

    conditions: Mapping[str, Any]
    threads: int
    apart: Apart
    seconds: float
    """The budget for tuning each model."""
    options_s: float = 0.0
    """The budget for searching XLA's options for each network."""
    effort: Effort = EFFORT

    def line(self, example: Example) -> Line:
        tuning = tuned_apart(example, self.seconds, self.options_s)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=FOLDER)))
            return self._line(example, tuning, stack, folder)

    def _line(self, example: Example, tuning: Tuning, stack: ExitStack, folder: Path) -> Line:
        peers, refused = takes_part(example)
        workers = [
            stack.enter_context(Worker(c, self.threads, pauses=True))
            for c in (OURSELVES, *(p.contestant for p in peers))
        ]
        took_part = versions(workers, print)
        asked = requests(example, tuning, peers)
        entries = [Entry(w, form) for w in workers for form in w.contestant.forms]
        failed, notes = prepared(entries, asked, folder, self.effort)
        errors = errors_of(example, entries, failed, folder)
        moved = errors.pop(NUDGED, None)
        not_nudged = failed.pop(NUDGED, None)
        if example.has_ties and not_nudged:
            notes[XLA] = f"its inputs could not be nudged: {not_nudged.message}"
        refused |= failed | wrong(example, errors, moved)
        with alone():
            ready = [e for e in entries if e.label not in (NUDGED, *refused)]
            found = turns(ready, effort_of(ready, self.effort), self.apart)
        refused |= {label: x for label, x in found.items() if isinstance(x, Refusal)}
        return Line(
            model=example.name, conditions={**self.conditions, "versions": took_part},
            tuning=tuning, errors=errors, moved=moved, notes={k: n for k, n in notes.items() if n},
            timed=timed({k: x.call_s for k, x in found.items() if isinstance(x, Turns)}),
            refused={label: f"{x.kind}: {x.message}" for label, x in refused.items()},
        )  # fmt: skip


def takes_part(example: Example) -> tuple[list[Peer], dict[str, Refusal]]:
    """The peers that have their file of the model, which is made where it is not there."""
    if example.name not in networks.NETWORKS:
        return [], {}
    folder = FOLDER / example.name
    networks.write(example.name, folder)
    peers: list[Peer] = []
    refused: dict[str, Refusal] = {}
    for peer in PEERS_OF_MODELS:
        failed = made(peer.format, example.name, folder) if peer.format else ""
        if failed:
            refused[peer.label] = Refusal("missing", failed)
        else:
            peers.append(peer)
    return peers, refused


def requests(
    example: Example, tuning: Tuning, peers: Sequence[Peer]
) -> Mapping[str, Mapping[str, Any]]:
    """What is asked of each contestant, by its name."""
    folder = FOLDER / example.name
    ours = {"inputs": "", "types": [], "model": tuning.database or "nothing"}
    asked: dict[str, Mapping[str, Any]] = {OURSELVES.name: ours}
    for peer in peers:
        asked[peer.contestant.name] = {
            "inputs": str(folder / peer.inputs), "types": ["f32"],
            "model": str(folder / peer.reads),
        }  # fmt: skip
    return {k: {"do": "prepare", "case": example.name, **v} for k, v in asked.items()}


def prepared(
    entries: Sequence[Entry],
    asked: Mapping[str, Mapping[str, Any]],
    folder: Path,
    effort: Effort,
) -> tuple[dict[str, Refusal], dict[str, str]]:
    """The entries that are not ready, and what the others say of themselves."""
    refused: dict[str, Refusal] = {}
    notes: dict[str, str] = {}
    for place, entry in enumerate(entries):
        request = {
            **asked[entry.worker.contestant.name], "label": entry.label, "form": entry.form,
            "result": str(folder / f"{place}.npz"),
        }  # fmt: skip
        answer = entry.worker.ask(request, effort.prepare_limit_s)
        if isinstance(answer, Refusal):
            refused[entry.label] = answer
        else:
            notes[entry.label] = answer["note"]
    return refused, notes


def errors_of(
    example: Example, entries: Sequence[Entry], failed: Mapping[str, Refusal], folder: Path
) -> dict[str, float]:
    """The largest error of each entry against XLA's results."""
    labels = [e.label for e in entries]
    if XLA in failed:
        return {}
    right = _results(folder / f"{labels.index(XLA)}.npz")
    compared = apart_by_norm if example.trains else furthest
    return {
        label: compared(right, _results(folder / f"{place}.npz"))
        for place, label in enumerate(labels)
        if label not in failed and label != XLA
    }


def _results(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{k}"] for k in range(len(file.files))]


def apart_by_norm(right: Sequence[Array], found: Sequence[Array]) -> float:
    """The norm of all differences over the norm of what is right."""
    if [x.shape for x in right] != [x.shape for x in found]:
        return float("inf")
    pairs = [
        (r.astype(np.float64), f.astype(np.float64)) for r, f in zip(right, found, strict=True)
    ]
    apart = sum(float(((r - f) ** 2).sum()) for r, f in pairs)
    return float(np.sqrt(apart / sum(float((r**2).sum()) for r, _ in pairs)))


def wrong(
    example: Example, errors: Mapping[str, float], moved: float | None = None
) -> dict[str, Refusal]:
    """Results that are not XLA's: further off than XLA's own move, where it is known how far."""
    tolerance = TOLERANCE_OF_STEPS if example.trains else TOLERANCE
    tolerance = max(tolerance, min(MOST_MOVED, TIMES_MOVED * (moved or 0.0)))
    return {
        label: Refusal("wrong_result", f"differs from XLA's by {found:.2g} of the largest")
        for label, found in errors.items()
        if not found <= tolerance
    }


def effort_of(ready: Sequence[Entry], effort: Effort) -> Effort:
    """The effort for calls as long as these."""
    once = replace(effort, warm_s=0.0, sample_s=1e-9, turn_limit_s=LONGEST_S)
    answers = [turn(entry, once) for entry in ready]
    longest_s = max((a["call_s"] for a in answers if not isinstance(a, Refusal)), default=0.0)
    return replace(
        once, warm_s=0.0 if longest_s > LONG_S else effort.warm_s, sample_s=effort.sample_s
    )

"""One case: tuned, prepared by everybody, held against XLA's results, and timed in turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.kernels import kept, plain
from benchmarks.kernels.case import Array, Case
from benchmarks.kernels.onnx_graph import model, stored
from benchmarks.kernels.tuning import tuned_apart
from benchmarks.peers.contestants import FOLDER as PEERS
from benchmarks.peers.contestants import OLDEST, Contestant
from benchmarks.peers.process import Refusal, Worker
from benchmarks.peers.rounds import Effort, Entry, Turns, difference, turns
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.timing.timing import Apart

EFFORT = Effort(rounds=7, case_s=20.0, prepare_limit_s=240.0)
_FORMS: Any = {"eager": ("arguments",), "compiled": ("arguments",)}
_MODEL: Any = {"model": ("arguments",)}


def contestants(folder: Path) -> tuple[Contestant, ...]:
    """XLA and hlotune in one process, which comes first, then the peers."""
    forms = ("xla", "first", "tuned", *plain.FORMS)
    ours: Any = {form: ("arguments",) for form in forms}
    package = "benchmarks.kernels.peer_"
    return (
        Contestant(name="ours", module=package + "ours", forms=ours, options=(str(folder),)),
        Contestant(name="pytorch", module=package + "pytorch", environment=OLDEST, forms=_FORMS),
        Contestant(name="onnxruntime", module=package + "onnx_runtime",
                   environment=PEERS / "onnxruntime", forms=_MODEL),
        Contestant(name="openvino", module=package + "open_vino",
                   environment=PEERS / "openvino", forms=_MODEL),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Everything that cases share."""

    folder: Path
    workers: Sequence[Worker]
    conditions: Mapping[str, Any]
    apart: Apart
    seconds: float
    """The budget for tuning each case."""
    effort: Effort = EFFORT

    def line(self, case: Case) -> kept.Line:
        tuning = tuned_apart(case, self.seconds, self.folder)
        entries = [Entry(w, form) for w in self.workers for form in w.contestant.forms]
        refused, notes = self._prepared(case, entries)
        with alone():
            ready = [e for e in entries if e.label not in refused]
            found = turns(ready, self.effort, self.apart)
        for worker in self.workers:
            worker.ask({"do": "drop"}, self.effort.turn_limit_s)
        refused |= {label: x for label, x in found.items() if isinstance(x, Refusal)}
        return kept.Line(
            case=case.name, conditions=self.conditions, tuning=tuning,
            times_s={k: median(x.call_s) for k, x in found.items() if isinstance(x, Turns)},
            refused={label: f"{x.kind}: {x.message}" for label, x in refused.items()},
            left_to_xla=notes.get(kept.OURS, notes.get(kept.FIRST, "")), goal_s=case.goal_s,
            loop_bytes={x: int(notes[x]) for x in kept.PLAIN if x in notes},
            stored_share=case.result_bytes / (case.argument_bytes + case.result_bytes),
        )  # fmt: skip

    def _prepared(
        self, case: Case, entries: Sequence[Entry]
    ) -> tuple[dict[str, Refusal], dict[str, str]]:
        """The entries that are not ready or wrong, and what the others say of themselves.

        Results are held against XLA's, which come first, as they come: of updates of large
        networks those of all entries together would not fit into memory.
        """
        refused: dict[str, Refusal] = {}
        notes: dict[str, str] = {}
        right: list[Array] | None = None
        with TemporaryDirectory() as name:
            folder = Path(name)
            asked = request(case, folder)
            for place, entry in enumerate(entries):
                path = folder / f"{place}.npz"
                whole = {**asked, "label": entry.label, "form": entry.form, "result": str(path)}
                answer = entry.worker.ask(whole, self.effort.prepare_limit_s)
                if isinstance(answer, Refusal):
                    refused[entry.label] = answer
                    continue
                notes[entry.label] = answer["note"]
                if entry.label in kept.PLAIN:
                    continue
                with np.load(path) as file:
                    results = [file[f"arr_{k}"] for k in range(len(file.files))]
                path.unlink()
                if entry.label == kept.XLA:
                    right = results
                elif right is not None and (found := wrong(case, right, results)) is not None:
                    refused[entry.label] = found
        return refused, notes


def request(case: Case, folder: Path) -> dict[str, Any]:
    """Writes inputs and the model; what is asked of everybody."""
    np.savez(folder / "inputs.npz", *[stored(x) for x in case.values()])
    path = ""
    if case.onnx is not None:
        path = str(folder / "model.onnx")
        Path(path).write_bytes(model(case.onnx, case.given))
    return {
        "do": "prepare", "case": case.name, "inputs": str(folder / "inputs.npz"),
        "types": [g.dtype for g in case.given], "model": path,
    }  # fmt: skip


def wrong(case: Case, right: Sequence[Array], results: Sequence[Array]) -> Refusal | None:
    """Why results are refused that are not XLA's; None where they are."""
    found = furthest(right, results)
    if found <= case.tolerance:
        return None
    return Refusal("wrong_result", f"differs from XLA's by {found:.2g} of the largest")


def furthest(right: Sequence[Array], found: Sequence[Array]) -> float:
    """The largest difference of any result, as a share of its largest element."""
    if len(right) != len(found):
        return float("inf")
    return max(_difference(r, f) for r, f in zip(right, found, strict=True))


def _difference(right: Array, found: Array) -> float:
    if right.size == found.size and not np.any(right):
        return float(np.abs(found).max())
    return difference(right, found.reshape(right.shape) if right.size == found.size else found)

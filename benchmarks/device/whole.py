"""Whole models on a device: their kernels tuned one by one, then put in and timed against XLA's.

A child (`models.py`) owns the device; where it dies with a kernel, that kernel is left to XLA.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.device.child import ChildFailed
from benchmarks.device.records import Results, Row

LOAD_S, KERNEL_S, WHOLE_S = 90.0, 20.0, 90.0
"""Seconds that one answer may take, in addition to the time for a kernel's candidates."""
FEWEST_S, MOST_S = 2.0, 10.0
"""The fewest and most seconds for the candidates of one kernel."""
LEAST_GAINS = (1.0, 1.1)
"""Kernels must be so many times as fast as XLA's to stand in a program, tried in this order."""
KEPT_SHARE = 0.25
"""The share of a model's seconds that is kept for the whole program, after its kernels."""


@dataclass(frozen=True, slots=True)
class Model:
    """A program of `examples/`, with floats of one type."""

    name: str
    factory: str
    """`module:function`, which gives a function and its arguments."""
    element: str
    seconds: float
    batch: int = 1
    """The number of times that the last argument is repeated along its first axis."""


PROGRAMS = "benchmarks.device.models"
MODELS = (
    Model("model_resnet50_b32_bf16", f"{PROGRAMS}:resnet50", "bf16", 110, batch=32),
    Model("model_bert_base_b8_bf16", f"{PROGRAMS}:bert_base", "bf16", 70, batch=8),
    Model("model_gpt2_block_bf16", f"{PROGRAMS}:gpt2_block", "bf16", 50),
    Model("rows_of_programs_bf16", f"{PROGRAMS}:rows", "bf16", 30),
    Model("pooling_32x112x64_bf16", f"{PROGRAMS}:pooling", "bf16", 15),
    Model("attention_with_bias_bf16", f"{PROGRAMS}:biased_attention", "bf16", 20),
    Model("model_resnet18_b32_bf16", f"{PROGRAMS}:resnet18", "bf16", 60, batch=32),
)
"""In order of worth; those without `model` in their names are programs of kernels that no case has:
rows by their expressions, windows that are reduced, and attention whose scores are a tail."""
TINY_MODELS = (Model("model_mlp_f32", f"{PROGRAMS}:small", "f32", 20),)
"""Models for a run without a GPU."""


class Asked(Protocol):
    """The method of a child that whole models need."""

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]: ...


@dataclass
class WholeModel:
    """One model on the way through its kernels."""

    child: Asked
    results: Results
    device: str
    model: Model
    until: float
    """The end of the model's time, in seconds of the monotonic clock."""
    say: Callable[[str], None]
    end: float = math.inf
    """When the whole run ends, by the same clock: no answer is waited for any longer."""
    winners: dict[int, str] = field(default_factory=dict)
    """The schedules of kernels that beat XLA, as JSON, by the number of the kernel."""
    gains: dict[int, float] = field(default_factory=dict)
    """How many times as fast as XLA's these are, each alone."""

    def run(self) -> None:
        """Measures and records each kernel and the whole; failures are recorded as errors."""
        try:
            labels = self._loaded()["kernels"]
            for n, label in enumerate(labels):
                left_s = self.until - time.monotonic() - KEPT_SHARE * self.model.seconds
                if left_s < FEWEST_S:
                    break  # the costliest kernels came first
                each_s = max(FEWEST_S, left_s / (len(labels) - n))
                self._kernel(n, label, min(MOST_S, each_s))
            self._whole()
        except ChildFailed as failure:
            self._record("model", "hlotune", {"right": False, "error": str(failure)[-800:]})

    def _loaded(self) -> dict[str, Any]:
        m = self.model
        question = {"do": "model", "factory": m.factory, "element": m.element, "batch": m.batch}
        return self._ask(question, LOAD_S)

    def _ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        left_s = max(self.end - time.monotonic(), 1.0)
        return self.child.ask(question, min(timeout_s, left_s))

    def _kernel(self, n: int, label: str, seconds: float) -> None:
        question = {"do": "kernel", "number": n, "seconds": seconds}
        try:
            found = self._ask(question, seconds + KERNEL_S)
        except ChildFailed as failure:
            found = {"right": False, "error": str(failure)[-800:]}
            self._loaded()  # in a new child
        if found.get("right") and found["seconds"] < found["default_s"]:
            self.winners[n] = found["schedule"]
            self.gains[n] = found["default_s"] / found["seconds"]
        self._record("model_kernel", "hlotune", {"kernel": label, **found})

    def _whole(self) -> None:
        """The program with all winners; where it is slower than XLA's, with the clear ones alone,
        and then with none, which is XLA's program.
        """
        for least in LEAST_GAINS:
            winners = {str(n): s for n, s in self.winners.items() if self.gains[n] >= least}
            found = self._ask({"do": "whole", "winners": winners}, WHOLE_S)
            if not winners or (found["right"] and found["seconds"] <= found["default_s"]):
                break
            self._record("model_slower", "hlotune", found)
        else:
            found |= {"seconds": found["default_s"], "right": True, "put_in": 0, "sites": 0}
        self._record("model", "xla_default", {"right": True, "seconds": found["default_s"]})
        self._record("model", "hlotune", found)

    def _record(self, what: str, how: str, outcome: Row) -> None:
        about = {"what": what, "device": self.device, "case": self.model.name, "how": how}
        self.results.add({**about, **outcome})
        took = f"{outcome['seconds'] * 1e6:.1f} us" if "seconds" in outcome else "no time"
        self.say(f"{self.model.name}: {outcome.get('kernel', how)} {took} {_beside(outcome)}")


def _beside(outcome: Row) -> str:
    default = f"beside {outcome['default_s'] * 1e6:.1f} us" if "default_s" in outcome else ""
    why = "" if outcome.get("right") else str(outcome.get("error") or outcome.get("refusal") or "")
    return " ".join(filter(None, (default, why)))


def models_table(rows: Sequence[Row]) -> str:
    """A Markdown table of microseconds of whole models; "" where none was measured."""
    timed = [r for r in rows if r["what"] == "model" and r["how"] == "hlotune" and r.get("right")]
    if not timed:
        return ""
    lines = [["model", "hlotune", "xla_default", "over xla", "kernels put in"], ["---"] * 5]
    for r in timed:
        times = (f"{r[name] * 1e6:.1f}" for name in ("seconds", "default_s"))
        ratio = f"{r['default_s'] / r['seconds']:.2f}"
        lines.append([r["case"], *times, ratio, f"{r['put_in']} at {r['sites']} sites"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

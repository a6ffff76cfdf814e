"""What a champion's record becomes again: its nest, code and estimates, made in a process apart.

Texts of records are parsed by MLIR and compiled by LLVM, which end their process at some damaged
ones.  So this is done in a child, which answers line by line; a record at which it ends costs its
own answer and no other.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlotune.schedules.processes import python_module, python_path
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.kinds import stored
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.evidence import KernelEvidence
from hlotune.tuning_logs.page.nest_boxes import Box

CHILD = "hlotune.tuning_logs.page.regenerating"
LIMIT_S = 180.0
"""The time for all kernels of a report."""
LATE = f"there was no time for it within {LIMIT_S:.0f} s"
ENDED = "the process that did so ended at this record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlated:
    """A column of the features by which the trials of a kernel differ in speed."""

    name: str
    rank_correlation: float
    """The rank correlation with the speed, -1 .. 1."""
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerated:
    flops: int
    dtype: str
    boxes: tuple[Box, ...]
    llvm: str
    assembly: str
    code: str
    """Hash of the machine code, to be compared with that of the code that was verified."""
    features: dict[str, float]
    """Features of the nest by name; none where today's space does not have the schedule."""
    correlated: tuple[Correlated, ...]
    """The strongest first."""
    predicted: tuple[tuple[float, float], ...] = ()
    """For each trial the share of trials that the model of the run's start took for faster, and the
    share that was; none where that model is not here any more."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a champion's code is not shown."""

    reason: str


def model_of(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Name and digest of the model that a run began with; None where it began with none."""
    name, digest = options.get("model"), options.get("model_digest")
    return (name, digest) if isinstance(name, str) and isinstance(digest, str) else None


def regenerated(
    kernels: Sequence[KernelEvidence],
    target: Target | None,
    model: tuple[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> dict[str, Regenerated | Missing]:
    """By key, one for each kernel that has a schedule of ours.

    Args:
        model: name and digest of the cost model that the run began with, to be asked again.
        limit_s: seconds for all of it.
    """
    champions = [k for k in kernels if k.schedule]
    if not isinstance(target, CpuTarget):
        missing = Missing("the recorded target cannot be read, or is of another kind than a CPU")
        return {k.report.key: missing for k in champions}
    found: dict[str, Regenerated | Missing] = {}
    end = time.monotonic() + limit_s
    while champions and (left_s := end - time.monotonic()) > 0:
        answers, is_late = _asked(champions, target, model, left_s)
        found |= answers
        left = [k for k in champions if k.report.key not in answers]
        if left and not is_late:
            found[left[0].report.key] = Missing(ENDED)
            left = left[1:]
        champions = left
    return found | {k.report.key: Missing(LATE) for k in champions}


def _asked(
    kernels: Sequence[KernelEvidence],
    target: CpuTarget,
    model: tuple[str, str] | None,
    limit_s: float,
) -> tuple[dict[str, Regenerated | Missing], bool]:
    """What a child answers before it ends, and whether the time ended it."""
    head = {"target": stored(target), "model": model}
    lines = [json.dumps(head), *(json.dumps(_question(k)) for k in kernels)]
    try:
        done = subprocess.run(
            python_module(CHILD), input="\n".join(lines), capture_output=True, text=True,
            encoding="utf-8", errors="surrogateescape", timeout=limit_s, check=False,
            env={**os.environ, "PYTHONPATH": python_path()},
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return _answers(said.decode("utf-8", "replace") if isinstance(said, bytes) else said), True
    return _answers(done.stdout), False


def _question(kernel: KernelEvidence) -> dict[str, Any]:
    trials = [[p.schedule, p.time_s] for p in kernel.points if p.time_s and not p.is_default]
    return {
        "key": kernel.report.key,
        "text": kernel.text,
        "schedule": kernel.schedule,
        "trials": trials,
    }


def _answers(said: str) -> dict[str, Regenerated | Missing]:
    found: dict[str, Regenerated | Missing] = {}
    for line in said.splitlines(keepends=True):
        if line.startswith('{"key"') and line.endswith("\n"):  # LLVM may print lines of its own
            answer = json.loads(line)
            found[answer["key"]] = _answer(answer)
    return found


def _answer(answer: dict[str, Any]) -> Regenerated | Missing:
    if "reason" in answer:
        return Missing(answer["reason"])
    data = answer["made"]
    return Regenerated(
        **{
            **data,
            "boxes": tuple(map(Box.of, data["boxes"])),
            "correlated": tuple(Correlated(**c) for c in data["correlated"]),
            "predicted": tuple((float(a), float(b)) for a, b in data["predicted"]),
        }
    )

"""How well guesses of time rank the schedules that a device measured, case by case."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.device.cases import from_json
from benchmarks.device.records import Row
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.patterns.gpu import GpuKernel
from hlotune.schedules.spaces.gpu.space import Configs, GpuSpace
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target_of

TRIED = 8
"""Schedules that are measured by a guess before the best of them is taken."""
FEWEST = 12
"""Schedules of a case below which its figures say nothing."""
Times = NDArray[np.float64]


def ranking(rows: Sequence[Row]) -> str:
    """Markdown: of each case its schedules, the rank correlation, and the regret of the first 8."""
    lines = [["case", "schedules", "rank correlation", f"regret of {TRIED}"], ["---"] * 4]
    figures = []
    for case in dict.fromkeys(r["case"] for r in rows if "case" in r):
        guessed, measured = _times(case, rows)
        if len(measured) < FEWEST:
            continue
        figures.append((correlation(guessed, measured), regret(guessed, measured)))
        lines.append([case, str(len(measured)), f"{figures[-1][0]:.2f}", f"{figures[-1][1]:.3f}"])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if not figures:
        return text
    ranks, regrets = np.array(figures).T
    mean = f"Mean: {ranks.mean():.2f} and {regrets.mean():.3f}, of {len(figures)} cases."
    return f"{text}\n\n{mean}"


def correlation(guessed: Times, measured: Times) -> float:
    """Spearman's: of the ranks, 1 where both have one order."""
    places = [
        np.argsort(np.argsort(times, kind="stable"), kind="stable") for times in (guessed, measured)
    ]
    return float(np.asarray(np.corrcoef(np.stack(places)))[0, 1])


def regret(guessed: Times, measured: Times) -> float:
    """By what part the best of the first that a guess offers is slower than the best of all."""
    first = np.argsort(guessed, kind="stable")[:TRIED]
    return float(measured[first].min() / measured.min() - 1)


def _times(case: str, rows: Sequence[Row]) -> tuple[Times, Times]:
    """Guessed and measured seconds of a case."""
    _, space, configs, measured = measured_configs(case, rows)
    return space.roofline(configs), measured


def measured_configs(case: str, rows: Sequence[Row]) -> tuple[GpuKernel, GpuSpace, Configs, Times]:
    """The right schedules of a case that its space still has, `(n, width)`, and their seconds."""
    mine = [r for r in rows if r.get("case") == case]
    kernel = from_json(mine[0]["kernel"])
    space = gpu_space(kernel, gpu_target_of(mine[0]["device"]))
    right = [r for r in mine if r["how"] == "hlotune" and r["what"] == "time" and r.get("right")]
    known = [(config, r) for r in right if (config := _config(space, r)) is not None]
    configs = np.array([config for config, _ in known], dtype=np.int32).reshape(-1, space.width)
    return kernel, space, configs, np.array([r["seconds"] for _, r in known])


def _config(space: GpuSpace, row: Row) -> NDArray[np.int32] | None:
    try:
        return space.config(row["sketch"], row["knobs"])
    except ScheduleError:  # the sketch has other knobs by now
        return None

"""The child that makes nests and code of recorded schedules: a line of JSON in, a line out."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from hlotune.codegen.build import build
from hlotune.codegen.texts import assembly_of, source_of
from hlotune.costmodel.inputs import inputs_of
from hlotune.costmodel.model import CostModel
from hlotune.costmodel.pretrained import start
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import HlotuneError, ScheduleError
from hlotune.schedules.features.summary import KERNEL_NAMES, NAMES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import arithmetic_type, flops_of
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.kinds import target_of
from hlotune.tuning_logs.page.nest_boxes import boxes

MOST_TRIALS = 256
"""The newest trials of a kernel, whose features are looked at."""
FEWEST_TRIALS = 16
"""From which on a correlation is worth telling."""
WEAKEST = 0.3
MOST_FEATURES = 5


def main() -> None:
    lines = (json.loads(line) for line in sys.stdin)
    head = next(lines)
    target, model = target_of(head["target"]), _model(head["model"])
    assert isinstance(target, CpuTarget)  # of other kinds nobody asks
    for question in lines:
        answer = {"key": question["key"], **_answer(question, target, model)}
        print(json.dumps(answer), flush=True)


def _model(named: Sequence[str] | None) -> CostModel | None:
    """The model of this name that comes with the package; None where its file is another one."""
    if named is None:
        return None
    try:
        begun = start(named[0])
    except (HlotuneError, ImportError):
        return None
    return begun.model if begun.digest == named[1] else None


def _answer(question: dict[str, Any], target: CpuTarget, model: CostModel | None) -> dict[str, Any]:
    try:
        return {"made": _made(question, target, model)}
    except HlotuneError as error:
        return {"reason": " ".join(str(error).split())[:500]}
    except Exception as error:  # a record may hold anything; one costs the others nothing
        return {"reason": f"a fault at this record: {type(error).__name__}: {error}"[:500]}


def _made(question: dict[str, Any], target: CpuTarget, model: CostModel | None) -> dict[str, Any]:
    compute = compute_of(graph_of(Kernel(question["text"])))
    schedule = Schedule.from_json(question["schedule"])
    nest = replay(compute, schedule, target)
    text = source_of(nest)
    space = _space(compute, target)
    return {
        "flops": flops_of(compute),
        "dtype": arithmetic_type(compute),
        "boxes": [box.to_json() for box in boxes(nest)],
        "llvm": text,
        "assembly": assembly_of(text, target),
        "code": build(compute, schedule, target).key,
        "features": _features(space, schedule) if space else {},
        "correlated": _correlated(space, question["trials"]) if space else [],
        "predicted": _predicted(space, question["trials"], model) if space and model else [],
    }


def _space(compute: Compute, target: CpuTarget) -> Space | None:
    try:
        return space_of(compute, target, "fast")
    except HlotuneError:
        return None


def _features(space: Space, schedule: Schedule) -> dict[str, float]:
    config = space.locate(schedule)
    if config is None or space.schedule(config) != schedule:
        return {}
    values = space.features(config[None, :])[0]
    return {name: float(value) for name, value in zip(NAMES, values, strict=True)}


def _correlated(space: Space, trials: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """The features of the nest that go most with the speed of trials, one of several alike."""
    rows, speeds = _rows(space, trials[-MOST_TRIALS:])
    if len(speeds) < FEWEST_TRIALS:
        return []
    found = list[tuple[int, float]]()
    varied = [k for k in range(len(KERNEL_NAMES), len(NAMES)) if np.ptp(rows[:, k]) > 1e-6]
    for k in varied:
        found.append((k, float(spearmanr(rows[:, k], speeds).statistic)))
    found = [x for x in found if abs(x[1]) >= WEAKEST]
    chosen = list[tuple[int, float]]()
    for k, correlation in sorted(found, key=lambda x: -abs(x[1])):
        if len(chosen) < MOST_FEATURES and not any(_alike(rows, k, j) for j, _ in chosen):
            chosen.append((k, correlation))
    return [
        {"name": NAMES[k], "rank_correlation": correlation, "trials": len(speeds)}
        for k, correlation in chosen
    ]


def _predicted(
    space: Space, trials: Sequence[tuple[str, float]], model: CostModel
) -> list[tuple[float, float]]:
    """Ranks as shares, of the fastest 0 and of the slowest 1: as predicted, and as measured."""
    configs, speeds = _configs(space, trials[-MOST_TRIALS:])
    if len(speeds) < FEWEST_TRIALS:
        return []
    scores = model.predict(inputs_of(model.reads, space, configs))
    last = len(speeds) - 1
    ranks = ((rankdata(-x) - 1) / last for x in (np.asarray(scores, np.float64), speeds))
    return [(float(a), float(b)) for a, b in zip(*ranks, strict=True)]


def _alike(rows: NDArray[np.float32], one: int, other: int) -> bool:
    return abs(float(spearmanr(rows[:, one], rows[:, other]).statistic)) > 0.9


def _rows(
    space: Space, trials: Sequence[tuple[str, float]]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """`(n, features)`, and the speeds `(n,)`, of the trials that today's space has."""
    configs, speeds = _configs(space, trials)
    if not len(speeds):
        return np.zeros((0, len(NAMES)), np.float32), speeds
    return space.features(configs), speeds


def _configs(
    space: Space, trials: Sequence[tuple[str, float]]
) -> tuple[Configs, NDArray[np.float64]]:
    """`(n, k)` and `(n,)`: the trials that today's space has, and their speeds."""
    configs, speeds = [], []
    for text, time_s in trials:
        try:
            schedule = Schedule.from_json(text)
        except ScheduleError:
            continue
        config = space.locate(schedule)
        if config is not None:
            configs.append(config)
            speeds.append(1 / time_s)
    if not configs:
        return np.zeros((0, 0), np.int32), np.zeros(0)
    return np.stack(configs), np.array(speeds)


if __name__ == "__main__":
    main()

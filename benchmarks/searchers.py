"""All searchers on the simulated device: how soon they are near the best that any of them found.

    python -m benchmarks.searchers --seeds 3

Without hardware, so the same on every machine, and nothing here is a time of real code.  Every
searcher starts from nothing: no heuristic, trees beside a roofline as model, batches as in a tuning
run.  The device's formula and the roofline are relatives: what they say of guided searches is
kinder than real devices are.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.cases import CASES
from benchmarks.command import command
from benchmarks.learned import reached
from benchmarks.results import Table, conditions, geometric_mean, publish
from benchmarks.searching import Operator, blind, kernel_tuner, operator
from hlotune.costmodel.pretrained import untrained
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.simulated.time_formula import BYTES_A_CYCLE, CLOCK_HZ, PORTS
from hlotune.schedules.targets.target import Properties
from hlotune.search.budget.budget import grown
from hlotune.search.searchers.searcher import SEARCHERS

TARGET = replace(TARGETS["znver4"], name="simulated device")
PEAK = Properties(
    flops_per_s={"f32": 2 * PORTS * 16 * CLOCK_HZ * TARGET.threads},
    read_bytes_per_s=BYTES_A_CYCLE[-1] * CLOCK_HZ,
    clock_hz=CLOCK_HZ,
)
OPERATORS = ("C6", "C9", "gemm_1024")
MARKS = (16, 32, 64, 128, 256)
NEAR = 1.1
"""The trials are counted that a search needs for a time at most so many times the best that any
search found.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    case: str
    searcher: str
    seed: int
    best_s: tuple[float, ...]
    """Best so far after each trial, on the simulated device."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", default=OPERATORS)
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=sorted(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=MARKS[-1])
    options = parser.parse_args()
    before = conditions(TARGET, PEAK)
    found: list[Search] = []
    for case in options.cases:
        of = operator(case, TARGET)
        for name in options.searchers:
            for seed in range(options.seeds):
                found.append(search(of, name, seed, options.trials))
        publish(table(found), before, [asdict(x) for x in found])


def search(of: Operator, name: str, seed: int, trials: int) -> Search:
    """One search of so many trials; batches are those of a tuning run."""
    device = SimulatedDevice(TARGET, seed=seed)
    model = untrained("trees", "").model
    tuner = kernel_tuner(of.task, blind(of.task, name, model, seed), model, device, device)
    times: list[float] = []
    while len(times) < trials:
        step = tuner.step(min(grown(len(times)), trials - len(times)))
        if step is None:
            break
        times += [t.time_s or np.inf for t in step.trials]
    best = np.minimum.accumulate(np.array(times))
    return Search(case=of.name, searcher=name, seed=seed, best_s=tuple(map(float, best)))


def table(found: Sequence[Search]) -> Table:
    """Best anywhere over best so far: 1 is as good as the best search of the case."""
    marks = [m for m in MARKS if m <= max(len(x.best_s) for x in found)]
    best_s = {c: min(x.best_s[-1] for x in found if x.case == c) for c in {x.case for x in found}}
    names = list(dict.fromkeys(x.searcher for x in found))
    rows = []
    for name in names:
        own = [x for x in found if x.searcher == name]
        shares = [[best_s[x.case] / at(x, mark) for x in own] for mark in marks]
        needed = [reached(np.array(x.best_s), NEAR * best_s[x.case]) for x in own]
        never = sum(n is None for n in needed)
        middle = sorted(n or 1_000_000 for n in needed)[len(needed) // 2]
        rows.append([
            name, str(len(own)), *(f"{geometric_mean(s):.3f}" for s in shares),
            "-" if middle == 1_000_000 else str(middle), str(never),
        ])  # fmt: skip
    return Table(
        name="searchers",
        columns=["searcher", ">searches", *(f">{m}" for m in marks), ">near after", ">never near"],
        rows=rows,
        notes=[
            "simulated device: a closed formula with noise, no times of real code",
            "best found by any over the best after so many trials, geometric mean",
            f"near: within {NEAR - 1:.0%} of the best found by any; median trials until then",
        ],
    )


def at(x: Search, trials: int) -> float:
    return x.best_s[min(trials, len(x.best_s)) - 1]


if __name__ == "__main__":
    command(main)

"""Guesses of time that learned from what devices measured: trees that correct the roofline."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.device.ranking import FEWEST, Times, correlation, measured_configs, regret
from benchmarks.device.records import Row
from hlotune.costmodel.gpu_guesses import factors
from hlotune.costmodel.tree_tables import TreeTables, tables_of
from hlotune.schedules.spaces.gpu import features

DEPTH, ROUNDS = 3, 100
GROWTH = {
    "max_depth": DEPTH, "eta": 0.1, "subsample": 0.7, "colsample_bytree": 0.5,
    "min_child_weight": 0.5, "base_score": 0.0, "nthread": 2, "seed": 1,
}  # fmt: skip
FOLDS = 6
Train = Callable[[Mapping[str, "Lesson"]], TreeTables]
VARIANTS = re.compile("_(bf16|f32|tf32|causal|relu|gelu|bias)")
"""Parts of a case's name by which kernels of the same extents differ."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was measured of a case."""

    features: NDArray[np.float32]
    guessed: Times
    """By the roofline."""
    measured: Times


def lessons(rows: Sequence[Row]) -> dict[str, Lesson]:
    """By the names of cases, those of which enough right schedules were measured."""
    found = {}
    for case in dict.fromkeys(r["case"] for r in rows if "case" in r):
        kernel, space, configs, measured = measured_configs(case, rows)
        if len(measured) >= FEWEST:
            seen = features.features(kernel, space, configs)
            found[case] = Lesson(seen, space.roofline(configs), measured)
    return found


def trained(known: Mapping[str, Lesson]) -> TreeTables:
    """Trees of the logarithm of measured over guessed times, less its mean of each case."""
    import xgboost  # nothing else here needs it

    told = [np.log2(one.measured / one.guessed) for one in known.values()]
    label = np.concatenate([t - t.mean() for t in told])
    weight = np.concatenate([np.full(len(t), len(t) ** -0.5) for t in told])
    seen = np.concatenate([one.features for one in known.values()])
    booster = xgboost.train(GROWTH, xgboost.DMatrix(seen, label, weight=weight), ROUNDS)
    return tables_of(booster.get_dump(dump_format="json"), DEPTH)


def held_out(
    rows: Sequence[Row], train: Callable[[Mapping[str, Lesson]], TreeTables] = trained
) -> str:
    """Markdown: rank correlation and regret of cases whose extents the trees have not seen."""
    known = lessons(rows)
    families = {case: VARIANTS.sub("", case) for case in known}
    order = np.random.default_rng(0).permutation(sorted(set(families.values())))
    lines = []
    for fold in range(min(FOLDS, len(order))):
        held = set(order[fold::FOLDS])
        trees = train({c: one for c, one in known.items() if families[c] not in held})
        for case, one in known.items():
            if families[case] in held:
                lines.append((case, len(one.measured), *_figures(one, trees)))
    return _page(lines)


def _figures(one: Lesson, trees: TreeTables) -> tuple[float, float, float, float]:
    corrected = one.guessed * factors(trees, one.features)
    return (
        correlation(one.guessed, one.measured),
        correlation(corrected, one.measured),
        regret(one.guessed, one.measured),
        regret(corrected, one.measured),
    )


def _page(lines: Sequence[tuple[str, int, float, float, float, float]]) -> str:
    head = ["case", "schedules", "rank: roofline", "trees", "regret of 8: roofline", "trees"]
    mean = np.mean([line[2:] for line in lines], axis=0)
    cells = [head, ["---"] * len(head)]
    for case, count, *figures in [*lines, ("mean", sum(line[1] for line in lines), *mean)]:
        ranks, regrets = figures[:2], figures[2:]
        cells.append(
            [case, str(count), *(f"{r:.2f}" for r in ranks), *(f"{r:.3f}" for r in regrets)]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)

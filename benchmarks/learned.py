"""What races say: how near the best ever recorded a search is, and after how many trials."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Table, geometric_mean
from hlotune.cli.charts import line_chart

MILESTONES = (64, 128, 256, 512, 1024, 2000)
SHOWN = (64, 128, 256, 512)
NEAR = 0.95
"""Share of the best speed ever recorded that counts as reached."""
NEAR_AT_FIRST = 0.9
"""The same for the first batch."""
FIRST_BATCH = 64

RUNS = {
    "shipped": "shipped model, the first 128 trials of 512",
    "run": "shipped model, a run of 128 trials, its last tenth coordinate descent",
}
"""What is said of the best after 128 trials, by contestant."""
HELPED = {
    "taught": "a model trained on C1 to C6",
    "lent": "a search on a database of C1 to C6, which lends their best and teaches its model,",
}
"""What is said of contestants on `TAUGHT`."""

HELD_OUT = (
    "C2", "C6", "C7", "C9", "gemm_512", "gemm_1024", "gemm_128x768x3072", "gemm_12x128x64x128",
)  # fmt: skip
TAUGHT = ("C7", "C8", "C9")
EARLIER = ("C1", "C2", "C3", "C4", "C5", "C6")
"""Convolutions whose trials teach the model that is tried on `TAUGHT`."""
AGAINST_RANDOM = ("C6", "C9", "gemm_1024", "gemm_128x768x3072")
"""The cases of `HELD_OUT` on which random search runs too: a search takes three minutes."""

CHARTS = {
    "learning_random": (("shipped", "random"), AGAINST_RANDOM),
    "learning_taught": (("taught", "scratch"), TAUGHT),
}
"""Name of a chart to the searches that it compares, and on which cases."""

Curve = NDArray[np.float64]
"""Time of the best after each trial, in seconds; infinite as long as everything failed."""


@dataclass(frozen=True, slots=True)
class Contestant:
    searcher: str
    model: str
    trials: int
    cases: tuple[str, ...]
    is_shipped: bool = False
    """Whether its model is the trained one of the package."""
    is_taught: bool = False
    """Whether its model was trained on the trials of `EARLIER`."""
    is_lent: bool = False
    """Whether the trials of `EARLIER` are in a database that lends and teaches, as to a run."""
    finishes: bool = False
    """Whether the last tenth of its trials is coordinate descent, as of a run's."""
    at_once: bool = False
    """Whether all its trials are one batch, of which nothing is learned on the way."""


CONTESTANTS = {
    "shipped": Contestant("annealing", "trees", 512, HELD_OUT, is_shipped=True),
    "run": Contestant("annealing", "trees", 128, HELD_OUT, is_shipped=True, finishes=True),
    "first": Contestant("annealing", "trees", FIRST_BATCH, HELD_OUT, is_shipped=True, at_once=True),
    "teacher": Contestant("annealing", "trees", 256, EARLIER),
    "scratch": Contestant("annealing", "trees", 512, TAUGHT),
    "taught": Contestant("annealing", "trees", 256, TAUGHT, is_taught=True),
    "lent": Contestant("annealing", "trees", 256, TAUGHT, is_lent=True),
    "random": Contestant("random", "random", 2000, AGAINST_RANDOM),
}


@dataclass(frozen=True, slots=True)
class Race:
    case: str
    contestant: str
    seed: int

    @property
    def trials(self) -> int:
        return CONTESTANTS[self.contestant].trials


def drawn(
    cases: Sequence[str], seeds: Iterable[int], searches: Sequence[str] = tuple(CONTESTANTS)
) -> Iterator[Race]:
    """The races, those of teachers before those of searches that learn from them."""
    for seed in seeds:
        for contestant in (c for c in CONTESTANTS if c in searches):
            for case in CONTESTANTS[contestant].cases:
                if case in cases:
                    yield Race(case, contestant, seed)


def share(curve: Curve, trials: int, best_s: float) -> float | None:
    """The share of the best speed ever recorded that a search has after so many trials; None where
    so many were not made, or nothing ever worked.
    """
    return float(best_s / curve[trials - 1]) if len(curve) >= trials and best_s < inf else None


def reached(curve: Curve, limit_s: float) -> int | None:
    """Trials until a time is at most the limit; None where none is: failures reach nothing."""
    found = np.flatnonzero((curve <= limit_s) & (curve < inf))
    return int(found[0]) + 1 if len(found) else None


def table(curves: Mapping[Race, Curve], best_s: Mapping[str, float], also: int = 0) -> Table:
    """Shares of the best; `also`: trials beside those of the searches that it is the best of."""
    pairs = dict.fromkeys((race.case, race.contestant) for race in curves)
    lines = []
    for case, contestant in pairs:
        mine = [c for r, c in curves.items() if (r.case, r.contestant) == (case, contestant)]
        if any(len(curve) for curve in mine):
            lines.append(cells(case, contestant, mine, best_s[case]))
    return Table(
        name="learning",
        columns=["case", "search", ">seeds", *(f">{n}" for n in SHOWN), ">to 95 %", ">never"],
        rows=lines,
        notes=[
            "columns of numbers: share, after so many trials, of the speed of the best that any "
            "search found, mean of the seeds; to 95 %: median of the trials until it has that "
            "share; never: searches that did not get there; times are those of champions in turns, "
            "of the best few in a final of their own: half of the samples choose, the other half "
            "count",
            *([f"the best is that of {also} trials of other databases, too"] if also else []),
            *summary(curves, best_s),
        ],
    )


def cells(case: str, contestant: str, curves: Sequence[Curve], best_s: float) -> list[str]:
    shares = [[s for c in curves if (s := share(c, n, best_s)) is not None] for n in SHOWN]
    needs = [reached(c, best_s / NEAR) for c in curves]
    got = [n for n in needs if n is not None]
    return [
        case,
        contestant,
        str(len(curves)),
        *(f"{mean(s):.3f}" if s else "-" for s in shares),
        f"{median(got):g}" if got else "-",
        str(len(needs) - len(got)),
    ]


def summary(curves: Mapping[Race, Curve], best_s: Mapping[str, float]) -> list[str]:
    """The figures over all cases, each as soon as there is enough to say it."""
    return [
        *of_first_batches(curves, best_s),
        *of_runs(curves, best_s),
        *of_random(curves),
        *of_earlier(curves, best_s),
    ]


def of_first_batches(curves: Mapping[Race, Curve], best_s: Mapping[str, float]) -> Iterator[str]:
    if shares := shares_at(FIRST_BATCH, curves, best_s, "first"):
        near = sum(s >= NEAR_AT_FIRST for s in shares)
        yield (
            f"a first batch of {FIRST_BATCH} within 10 % of the best ever: {near} of {len(shares)} "
            f"cases, means of the seeds; the least has {min(shares):.3f} of its speed"
        )


def of_runs(curves: Mapping[Race, Curve], best_s: Mapping[str, float]) -> Iterator[str]:
    for contestant, words in RUNS.items():
        if shares := shares_at(128, curves, best_s, contestant):
            yield f"{words}: {mean(shares):.3f} of the best ever"


def of_random(curves: Mapping[Race, Curve]) -> Iterator[str]:
    if ahead := [ratios for n in SHOWN if (ratios := over_random(n, curves))]:
        yield (
            f"random's best over annealing's after {', '.join(map(str, SHOWN[: len(ahead)]))} "
            f"trials: {', '.join(f'{geometric_mean(ratios):.2f}' for ratios in ahead)}, "
            f"geometric means of {len(ahead[0])} races"
        )
    saved, never = against_random(curves)
    if saved:
        yield (
            f"to random's best, annealing on the shipped trees needs {in_the_mean(saved)} of the "
            f"trials in {len(saved)} races; {never} in which it did not get there count with all "
            "the trials that it made, at least so many"
        )


def of_earlier(curves: Mapping[Race, Curve], best_s: Mapping[str, float]) -> Iterator[str]:
    for contestant, words in HELPED.items():
        met = against_scratch(curves, best_s, contestant)
        nobody = met.count(None)
        if len(met) > nobody:
            ratios = [1.0 if ratio is None else ratio for ratio in met]
            yield (
                f"to 95 % of the best ever, {words} needs {in_the_mean(ratios)} of the trials from "
                f"scratch in {len(met)} races; {nobody} in which neither got there count as no "
                "saving; a search that did not get there (`never`) counts with all the trials that "
                "it made: of one from scratch the ratio is an upper bound, of the other a lower one"
            )


def in_the_mean(ratios: Sequence[float]) -> str:
    """The mean, geometric as of ratios, and the median."""
    return f"{geometric_mean(ratios):.3f} (median {median(ratios):.3f})"


def charts(curves: Mapping[Race, Curve], best_s: Mapping[str, float]) -> dict[str, str]:
    """SVGs of the shares of the best speed ever, by name, as far as all races of a line went."""
    found = {}
    for name, (contestants, cases) in CHARTS.items():
        lines = {c: mean_shares(c, cases, curves, best_s) for c in contestants}
        drawn_lines = {c: line for c, line in lines.items() if line}
        title = f"Mean of {', '.join(cases)}"
        if drawn_lines:
            found[name] = line_chart(title, "trials", "of the best speed ever", drawn_lines)
    return found


def mean_shares(
    contestant: str,
    cases: Sequence[str],
    curves: Mapping[Race, Curve],
    best_s: Mapping[str, float],
) -> list[float]:
    """After each trial, up to the last milestone that the tables show."""
    shares = [
        best_s[race.case] / curve
        for race, curve in curves.items()
        if race.contestant == contestant and race.case in cases and len(curve)
    ]
    length = min([SHOWN[-1], *map(len, shares)])
    return [float(x) for x in np.mean([s[:length] for s in shares], axis=0)] if shares else []


def shares_at(
    trials: int,
    curves: Mapping[Race, Curve],
    best_s: Mapping[str, float],
    contestant: str = "shipped",
) -> list[float]:
    """The shares of one contestant, a mean of the seeds for each case."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for race, curve in curves.items():
        reached_share = share(curve, trials, best_s[race.case])
        if race.contestant == contestant and reached_share is not None:
            found[race.case].append(reached_share)
    return [mean(shares) for shares in found.values()]


def over_random(trials: int, curves: Mapping[Race, Curve]) -> list[float]:
    """How much slower random search's best is after so many trials than the shipped model's, of
    each race that both ran so far; infinite or 0 where one has nothing that works.
    """
    ratios = []
    for race, curve in curves.items():
        rival = curves.get(Race(race.case, "random", race.seed), curve[:0])
        if race.contestant == "shipped" and min(len(curve), len(rival)) >= trials:
            ours, theirs = float(curve[trials - 1]), float(rival[trials - 1])
            if min(ours, theirs) < inf:
                ratios.append(theirs / ours)
    return ratios


def against_random(curves: Mapping[Race, Curve]) -> tuple[list[float], int]:
    """Trials of the shipped model over those that random search took for its best, and in how many
    races it never had that.

    There it counts with all the trials that it made, a lower bound.  Races in which random search
    is not through are left out.
    """
    found, never = list[float](), 0
    for race, curve in curves.items():
        against = Race(race.case, "random", race.seed)
        rival = curves.get(against, curve[:0])
        if race.contestant == "shipped" and len(curve) and len(rival) >= against.trials:
            ours, theirs = (reached(c, float(rival[-1])) for c in (curve, rival))
            if theirs is not None:
                found.append((ours or len(curve)) / theirs)
                never += ours is None
    return found, never


def against_scratch(
    curves: Mapping[Race, Curve], best_s: Mapping[str, float], contestant: str = "taught"
) -> list[float | None]:
    """Trials that a contestant needs to 95 % of the best ever, over those from scratch.

    A search that did not get there counts with all the trials that it made, which flatters it: of
    one from scratch the ratio is an upper bound, of a contestant a lower one.  None where neither
    got there.
    """
    found: list[float | None] = []
    for race, curve in curves.items():
        rival = curves.get(Race(race.case, "scratch", race.seed), curve[:0])
        if race.contestant == contestant and len(curve) and len(rival):
            limit_s = best_s[race.case] / NEAR
            ours, theirs = reached(curve, limit_s), reached(rival, limit_s)
            if ours is None and theirs is None:
                found.append(None)
            else:
                found.append((ours or len(curve)) / (theirs or len(rival)))
    return found

"""Boosted trees: xgboost, on pairs, on the logarithm of time, or on both.

They do not begin at nothing, but part of the way to what a roofline says (`roofline.py`).  Where
they have seen nothing like a kernel, they say what it says.

Where there is time, trees on both are several forests in one: their errors differ.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xgboost
from numpy.typing import NDArray

from hlotune.costmodel import files
from hlotune.costmodel.boosters import checked_booster
from hlotune.costmodel.forest import Asked
from hlotune.costmodel.inputs import (
    Features,
    Inputs,
    Reads,
    as_summaries,
    count,
    require_lesson,
    require_rows,
)
from hlotune.costmodel.merge_forests import merged
from hlotune.costmodel.metrics import GroupedScores
from hlotune.costmodel.pairwise_gradients import both_gradients
from hlotune.costmodel.roofline import log_speed
from hlotune.costmodel.row_selection import kept
from hlotune.costmodel.training_budget import Effort, Rows, held_out_in_turn, log_scores

Scores = NDArray[np.float32]
Groups = NDArray[np.int32]
Objective = Literal["rank", "time", "both"]


@dataclass(frozen=True, slots=True)
class Growth:
    """How many trees of what size are grown."""

    rounds: int
    """At most."""
    patience: int
    """Rounds without a better ranking of what is held out, after which no more are grown.  As many
    as there are at most where several parts are held out in turn, whose mean decides."""
    blind: int
    """Rounds where nothing is held out."""
    rows: int
    """That are learned, at most (`kept_rows.kept`)."""
    depth: int
    eta: float
    min_child_weight: float
    """The least weight of a leaf of a tree on pairs; one on log time weighs a row as 1."""
    columns: float
    """Share of the features that a level of a tree chooses from."""


GROWTH: dict[Effort, Growth] = {
    # A fit stays well under a second, whatever is known (docs/lab/tuner.md).
    "batch": Growth(80, 8, 20, rows=2500, depth=5, eta=0.2, min_child_weight=0.1, columns=1.0),
    "offline": Growth(
        100, 100, 15, rows=10**6, depth=6, eta=0.1, min_child_weight=0.3, columns=0.35
    ),
}


@dataclass(frozen=True, slots=True)
class Member:
    """A forest of those that are grown together."""

    objective: Objective
    depth: int
    seed: int = 0


TOGETHER = (Member("both", 7), Member("rank", 6), Member("rank", 6, seed=1))
"""Each has an equal say, in units of its spread; docs/models.md has others."""

THREADS = 1
"""A second one saves less than a quarter, and spins for seconds where others use the cores."""
BINS = 64
START = 0.5
"""Share of the roofline's logarithm of speed at which trees begin; docs/models.md has others."""

OBJECTIVES: dict[Objective, dict[str, Any]] = {
    "rank": {
        "objective": "rank:pairwise",
        # Pairs are drawn at random for each row; the default takes pairs with the top rows alone,
        # and ranks worse.
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
    },
    "time": {"objective": "reg:squarederror", "base_score": 0.0},
    "both": {"objective": "reg:squarederror", "base_score": 0.0},  # with gradients of our own
}
NAMES: dict[Objective, str] = {"both": "trees", "rank": "trees-rank", "time": "trees-time"}


@dataclass(frozen=True, slots=True)
class Lesson:
    """`n` rows, those of one kernel behind each other."""

    inputs: Features
    scores: Scores
    groups: Groups

    def of(self, rows: Rows | NDArray[np.intp] | slice) -> "Lesson":
        return Lesson(self.inputs[rows], self.scores[rows], self.groups[rows])

    @property
    def ranks_anything(self) -> bool:
        return any(np.ptp(self.scores[a:b]) > 0 for a, b in pairwise(_ends(self.groups)))


@dataclass(frozen=True, slots=True)
class Forests:
    """Trees, and the share of the roofline at which they begin."""

    trees: Asked
    start: float

    def margins(self, inputs: Features) -> Scores:
        return self.trees.margins(inputs) + np.float32(self.start) * log_speed(inputs)


class Trees:
    """Fits on top of the loaded model's margin, if one was loaded, else from nothing.

    A loaded model that ranks the rows at hand worse than chance is left out.
    """

    reads: Reads = "summary"

    def __init__(self, effort: Effort = "batch", objective: Objective = "both") -> None:
        self._effort, self._objective, self._growth = effort, objective, GROWTH[effort]
        several = effort == "offline" and objective == "both"
        self._members = TOGETHER if several else (Member(objective, self._growth.depth),)
        self._base: Forests | None = None
        self._grown: Forests | None = None

    @property
    def knows(self) -> bool:
        return self._grown is not None

    def fit(self, inputs: Inputs, scores: Scores, groups: Groups) -> None:
        require_lesson(inputs, scores, groups, self.reads)
        known = Lesson(as_summaries(inputs), scores, groups).of(
            kept(scores, groups, self._growth.rows)
        )
        lesson = known.of(np.argsort(known.groups, kind="stable"))
        if not lesson.ranks_anything:
            return
        base = self._base if self._is_sound(lesson) else None
        grown = [self._fitted(member, base, lesson) for member in self._members]
        self._grown = grown[0] if len(grown) == 1 else _together(base, grown, lesson)

    def _fitted(self, member: Member, base: Forests | None, lesson: Lesson) -> Forests:
        """Learns all rows while a part of them is learned to know for how many rounds.

        Neither on the thread that Ctrl-C interrupts: xgboost asks for rows by callbacks, and makes
        errors of its own of an interrupt in one.
        """
        until, growth = _Until(), self._growth
        parts = [
            held
            for held in held_out_in_turn(lesson.groups, self._effort)
            if lesson.of(held).ranks_anything and lesson.of(~held).ranks_anything
        ]
        with ThreadPoolExecutor(2) as beside:
            if not parts:
                blind = beside.submit(self._train, member, base, lesson, growth.blind)
                return _grown_on(base, blind.result())
            all_rows = beside.submit(
                self._train, member, base, lesson, growth.rounds, callbacks=[until]
            )
            judged = beside.submit(self._curves, member, base, lesson, parts, until)
            try:
                until.rounds = _best(judged.result())
            except BaseException:
                until.is_given_up = True
                raise
            finally:
                until.is_known = True
            grown = all_rows.result()
        surplus = until.begun - until.rounds
        kept = grown[: grown.num_boosted_rounds() - surplus] if surplus else grown
        return _grown_on(base, kept)

    def _curves(
        self,
        member: Member,
        base: Forests | None,
        lesson: Lesson,
        parts: Sequence[Rows],
        until: "_Until",
    ) -> list[list[float]]:
        return [
            self._curve(member, base, lesson, held, _GivenUp(until))
            for held in parts
            if not until.is_given_up
        ]

    def _curve(
        self, member: Member, base: Forests | None, lesson: Lesson, held: Rows, given_up: "_GivenUp"
    ) -> list[float]:
        """How well the held-out rows are ranked, after each round of learning the others."""
        asked = lesson.of(held)
        judge = xgboost.DMatrix(
            asked.inputs, asked.scores, qid=asked.groups, nthread=THREADS,
            base_margin=_start(base) * log_speed(asked.inputs),
        )  # fmt: skip
        truth = GroupedScores(asked.scores, asked.groups)
        stop = xgboost.callback.EarlyStopping(
            rounds=self._growth.patience, metric_name="rank", maximize=True
        )
        curves: dict[str, dict[str, list[float]]] = {}
        self._train(
            member, base, lesson.of(~held), self._growth.rounds,
            evals=[(judge, "held_out")], callbacks=[stop, given_up], evals_result=curves,
            custom_metric=lambda margins, _: ("rank", truth.correlation(margins)),
        )  # fmt: skip
        return curves["held_out"]["rank"]

    def _train(
        self, member: Member, base: Forests | None, lesson: Lesson, rounds: int, **judge: Any
    ) -> Any:
        """`judge`: what xgboost is to say of held-out rows meanwhile, and what ends it."""
        inputs, scores, groups = lesson.inputs, lesson.scores, lesson.groups
        ranks = member.objective == "rank"
        labels = scores if ranks else log_scores(scores)
        start = _centred(_start(base) * log_speed(inputs), groups)
        with xgboost.config_context(nthread=THREADS):  # of this thread alone
            matrix = xgboost.QuantileDMatrix(
                inputs, labels, qid=groups, base_margin=start, max_bin=BINS, nthread=THREADS
            )
            return xgboost.train(
                self._parameters(member),
                matrix,
                num_boost_round=rounds,
                xgb_model=base and base.trees.raw,
                obj=both_gradients(labels, groups) if member.objective == "both" else None,
                verbose_eval=False,
                **judge,
            )

    def _parameters(self, member: Member) -> dict[str, Any]:
        growth = self._growth
        return {
            **OBJECTIVES[member.objective],
            "tree_method": "hist",
            "max_bin": BINS,
            "max_depth": member.depth,
            "eta": growth.eta,
            "min_child_weight": growth.min_child_weight if member.objective == "rank" else 2.0,
            "colsample_bylevel": growth.columns,
            "nthread": THREADS,
            "seed": member.seed,
            "verbosity": 0,
            "disable_default_eval_metric": 1,
        }

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        require_rows(inputs, self.reads)
        if self._grown is None:
            return np.zeros(count(inputs), np.float32)
        return self._grown.margins(as_summaries(inputs))

    def save(self, path: Path) -> None:
        if self._grown is None:
            raise ValueError(
                f"expected a model that has learned, got an empty one; fit it before {path}"
            )
        header = files.Header(NAMES[self._objective], files.features_key(self.reads))
        raw = np.frombuffer(bytes(self._grown.trees.raw), np.uint8)
        files.write(path, header, {"booster": raw, "start": np.array(self._grown.start)})

    def load(self, path: Path) -> None:
        with files.arrays_of(path, NAMES[self._objective], self.reads) as arrays:
            booster = xgboost.Booster({"nthread": THREADS})
            booster.load_model(checked_booster(arrays["booster"]))
            start = float(arrays.get("start", 0.0))  # files of before had none
            self._base = self._grown = Forests(Asked(booster), start)

    def _is_sound(self, lesson: Lesson) -> bool:
        """Whether a loaded model ranks rows it has not learned better than chance, kernel by
        kernel."""
        if self._base is None:
            return False
        truth = GroupedScores(lesson.scores, lesson.groups)
        return truth.correlation(self._base.margins(lesson.inputs)) > 0


def _together(base: Forests | None, members: Sequence[Forests], lesson: Lesson) -> Forests:
    """Forests that grew on the same base as one, whose spread is that of the first."""
    spreads = [_spread(m.margins(lesson.inputs), lesson.groups) or 1.0 for m in members]
    weights = [spreads[0] / (spread * len(members)) for spread in spreads]
    begin = 0 if base is None else base.trees.booster.num_boosted_rounds()
    grown = [m.trees.booster[begin:] if begin else m.trees.booster for m in members]
    start = sum(weight * m.start for weight, m in zip(weights, members, strict=True))
    if base is None:
        return Forests(Asked(merged(grown, weights)), start)
    return Forests(Asked(merged([base.trees.booster, *grown], [sum(weights), *weights])), start)


def _spread(margins: Scores, groups: Groups) -> float:
    """The spread of the margins of a kernel's rows, in the mean over the kernels."""
    return float(np.mean([np.std(margins[a:b]) for a, b in pairwise(_ends(groups))]))


def _start(base: Forests | None) -> float:
    return START if base is None else base.start


def _grown_on(base: Forests | None, booster: Any) -> Forests:
    return Forests(Asked(booster, None if base is None else base.trees), _start(base))


class _Until(xgboost.callback.TrainingCallback):
    """Ends a training once another thread knows how many rounds it takes, and these are done."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds, self.begun, self.is_known = 0, 0, False
        self.is_given_up = False
        """Nobody waits for an answer any more."""

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.begun = epoch + 1
        return self.is_known and self.begun >= self.rounds


class _GivenUp(xgboost.callback.TrainingCallback):
    """Ends a training whose answer nobody waits for."""

    def __init__(self, until: _Until) -> None:
        super().__init__()
        self._until = until

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._until.is_given_up


def _best(curves: Sequence[list[float]]) -> int:
    """Rounds after which the mean of the curves is largest, as far as all of them go."""
    least = min(map(len, curves))
    return 1 + int(np.argmax(np.mean([c[:least] for c in curves], axis=0)))


def _centred(start: Scores, groups: Groups) -> Scores:
    """About the mean of each kernel: a roofline is in no unit that scores are in."""
    number = np.unique(groups, return_inverse=True)[1]
    means = np.bincount(number, start) / np.bincount(number)
    centred: Scores = start - means[number].astype(np.float32)
    return centred


def _ends(groups: Groups) -> list[int]:
    """Where the rows of each group begin, and the number of rows; groups are sorted."""
    return [0, *(int(k) + 1 for k in np.flatnonzero(np.diff(groups))), len(groups)]

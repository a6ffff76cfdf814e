"""Training a cost model on recorded trials, and judging it by kernels it has not seen."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.files import Training
from hlotune.costmodel.inputs import count, joined, taken
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.ranking_quality import Quality, quality
from hlotune.costmodel.replay_pool import best_so_far
from hlotune.costmodel.splits import LEAST_KNOWN, Split, hold_out_families, hold_out_kernels
from hlotune.costmodel.training_budget import group_numbers
from hlotune.search.learning.training_rows import FEWEST, Examples

HoldOut = Literal["kernels", "families"]
KERNELS_SHARE = 0.25
ENOUGH = {"kernels": f"{LEAST_KNOWN + 1} kernels of one family", "families": "two families"}
By = Literal["all trials", "300 of all", "at random"]
"""The trials that a model is judged by.  `at random` are those that were drawn at random, which are
a sample of the space, where guided ones crowd among the fastest.  `300 of all` is a sample of equal
size for each kernel: how many of the 30 best a model finds depends on how many trials there are.
"""
SAMPLE = 300


@dataclass(frozen=True, slots=True)
class Judged:
    """A model on one kernel that it has not seen, by trials of one machine."""

    model: str
    seed: int
    key: str
    family: str
    label: str
    machine: str
    by: By
    trials: int
    quality: Quality
    curve: tuple[float, ...]
    """Best score so far when the trials are measured in the order of the predictions."""
    train_s: float
    """Seconds of the model's training on all that it learned from."""
    predict_rows_per_s: float

    @property
    def predict_s(self) -> float:
        """Seconds for all the trials that it is judged by, features not included."""
        return self.trials / self.predict_rows_per_s


def trained(name: str, on: Sequence[Examples]) -> CostModel:
    """A model of `MODELS`, taught from nothing by all of these."""
    model, numbers = MODELS[name]("offline"), group_numbers([e.key for e in on])
    groups = np.repeat(np.array(numbers, np.int32), [len(e.times_s) for e in on])
    inputs = joined([e.inputs(model.reads) for e in on])
    model.fit(inputs, np.concatenate([e.scores for e in on]), groups)
    return model


def training_of(on: Sequence[Examples]) -> Training:
    """What a model's file says that it has seen."""
    return Training(
        trials=sum(len(e.times_s) for e in on),
        kernels=tuple(sorted({e.key for e in on})),
        families=tuple(sorted({e.family for e in on})),
    )


def splits_of(of: Sequence[Examples], hold_out: HoldOut, seed: int) -> tuple[Split, ...]:
    """Raises ValueError where there are too few kernels to hold any out."""
    families = {e.key: e.family for e in of}
    if hold_out == "families":
        splits = hold_out_families(families, seed=seed)
    else:
        splits = (hold_out_kernels(families, share=KERNELS_SHARE, seed=seed),)
    if not any(s.train and s.held_out for s in splits):
        raise ValueError(
            f"expected {ENOUGH[hold_out]}, to hold some {hold_out} out, got {len(families)} "
            f"kernels in {len(set(families.values()))} families; record more, or hold out the other"
        )
    return splits


def cross_judged(
    name: str,
    of: Sequence[Examples],
    hold_out: HoldOut,
    seed: int,
    begun: Callable[[Split], object] = lambda split: None,
) -> Iterator[Judged]:
    """Trains once a split, and judges by what the split holds out, on all machines.

    Args:
        begun: is called with each split before a model is trained on it.
    """
    for split in splits_of(of, hold_out, seed):
        begun(split)
        start_s = time.perf_counter()
        model = trained(name, [e for e in of if e.key in split.train])
        train_s = time.perf_counter() - start_s
        for e in of:
            if e.key in split.held_out:
                yield from judged(name, model, e, seed, train_s)


def judged(
    name: str, model: CostModel, e: Examples, seed: int = 0, train_s: float = 0.0
) -> Iterator[Judged]:
    """Judges a model by all trials, by `SAMPLE` of these where there are so many, and by those
    drawn at random where there are `FEWEST` of them.
    """
    for by, of in _sets(e).items():
        inputs = of.inputs(model.reads)
        model.predict(taken(inputs, np.arange(FEWEST)))  # what is prepared once is in no rate
        start_s = time.perf_counter()
        predictions: NDArray[np.float32] = model.predict(inputs)
        predict_s = time.perf_counter() - start_s
        order = np.argsort(-predictions, kind="stable")
        yield Judged(
            model=name,
            seed=seed,
            key=e.key,
            family=e.family,
            label=e.label,
            machine=e.machine,
            by=by,
            trials=len(of.times_s),
            quality=quality(of.scores, predictions),
            curve=tuple(best_so_far(of.scores, order).tolist()),
            train_s=train_s,
            predict_rows_per_s=count(inputs) / max(predict_s, 1e-9),
        )


def _sets(e: Examples) -> dict[By, Examples]:
    """The sets of trials that models are judged by on a kernel."""
    sets: dict[By, Examples] = {"all trials": e}
    if len(e.times_s) >= SAMPLE:
        sets["300 of all"] = e.sample(SAMPLE)
    if len((drawn := e.at_random).times_s) >= FEWEST:
        sets["at random"] = drawn
    return sets

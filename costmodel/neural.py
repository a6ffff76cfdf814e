"""Neural networks that rank: one way of training for all, in torch.

Loss and optimizer are those of AutoTVM's TreeGRU (arXiv:1805.08166 and its experiment code): Adam,
weight decay, clipped gradients, logistic loss on pairs of one kernel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import softplus

from hlotune.costmodel import files
from hlotune.costmodel.adam import Adam
from hlotune.costmodel.inputs import Inputs, Reads, count, require_lesson, require_rows, taken
from hlotune.costmodel.metrics import mean_spearman
from hlotune.costmodel.training_budget import Effort, held_out, log_scores

torch.set_num_threads(1)  # a second one gains little on matrices this small, and takes a core

Scores = NDArray[np.float32]
Groups = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Schooling:
    """How long and how fast a network learns."""

    steps: int
    """Minibatches, at most."""
    blind: int
    """Minibatches where nothing is held out."""
    every: int
    """Minibatches between two looks at what is held out; 0: nothing is."""
    patience: int
    """Looks without a better ranking, after which there are no more."""
    rows: int
    """Newest rows that are read."""
    rate: float
    fresh_rate: float
    """The learning rate of a network that was not loaded."""


SCHOOLING: dict[Effort, Schooling] = {
    "batch": Schooling(12, 12, 0, 0, rows=2500, rate=3e-4, fresh_rate=3e-3),
    "offline": Schooling(3000, 600, 50, 12, rows=10**6, rate=7e-4, fresh_rate=7e-4),
}
KERNELS, ROWS = 4, 32
"""The size of a minibatch: so many rows of each of so many kernels."""
CLIP = 5.0
PREDICTED = 512
"""Rows predicted at a time: what they need on the way stays in the caches."""
JUDGED = 512
"""Rows, evenly spaced, by which a loaded network is judged."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """`n` rows of several kernels."""

    inputs: Inputs
    scores: Scores
    groups: Groups

    def of(self, rows: NDArray[np.bool_] | slice) -> "Lesson":
        return Lesson(taken(self.inputs, rows), self.scores[rows], self.groups[rows])

    @property
    def ranks_anything(self) -> bool:
        numbers = np.unique(self.groups)
        return any(np.ptp(self.scores[self.groups == g]) > 0 for g in numbers)


class Module(torch.nn.Module):
    """A network that scores rows, and scales their columns with `self.scale`, a `Scale`."""

    def prepare(self, inputs: Inputs) -> None:
        """Takes the scale of its inputs from these."""
        raise NotImplementedError

    def score(self, inputs: Inputs) -> torch.Tensor:
        """`(n,)`: larger is faster."""
        raise NotImplementedError


class Neural:
    """A cost model around a network.

    A loaded network is trained further, from where it was loaded, by each `fit`; one that ranks the
    rows at hand worse than chance is left out.
    """

    def __init__(
        self, name: str, reads: Reads, make: Callable[[int], Module], effort: Effort = "batch"
    ) -> None:
        self.reads: Reads = reads
        self._name, self._make = name, make
        self._effort, self._schooling = effort, SCHOOLING[effort]
        self._base: Module | None = None
        self._network: Module | None = None

    @property
    def knows(self) -> bool:
        return self._network is not None

    def fit(self, inputs: Inputs, scores: Scores, groups: Groups) -> None:
        require_lesson(inputs, scores, groups, self.reads)
        lesson = Lesson(inputs, scores, groups).of(slice(-self._schooling.rows, None))
        if not lesson.ranks_anything:
            return
        base = self._base
        sound = base if base is not None and _ranks(base, lesson) else None
        every, steps = np.ones(len(lesson.groups), np.bool_), self._steps(sound, lesson)
        self._network, learning = self._begun(sound, lesson, every, steps)
        for _ in learning:
            pass

    def _steps(self, base: Module | None, lesson: Lesson) -> int:
        """Minibatches after which kernels that are held out are ranked best: all rows are learned
        for so many afterwards, from the same beginning.
        """
        how, held = self._schooling, held_out(lesson.groups, self._effort)
        judged, looks = lesson.of(held), list[float]()
        if not (how.every and judged.ranks_anything and lesson.of(~held).ranks_anything):
            return how.blind
        network, learning = self._begun(base, lesson, ~held, how.steps)
        for step in learning:
            if step % how.every:
                continue
            predicted = _scored(network, judged.inputs)
            looks.append(mean_spearman(judged.scores, predicted, judged.groups))
            if len(looks) - looks.index(max(looks)) > how.patience:
                break
        return how.every * (1 + looks.index(max(looks)))

    def _begun(
        self, base: Module | None, lesson: Lesson, allowed: NDArray[np.bool_], steps: int
    ) -> tuple[Module, Iterator[int]]:
        """A network that has learned nothing but what the base had, and its minibatches of the
        allowed rows, each of which is learned when its number is asked for.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = self._make(_width(lesson.inputs))
        if base is None:
            network.prepare(taken(lesson.inputs, allowed))
        else:
            network.load_state_dict(base.state_dict())
        rate = self._schooling.fresh_rate if base is None else self._schooling.rate
        return network, _learning(network, lesson, allowed, steps, rate)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        require_rows(inputs, self.reads)
        if self._network is None:
            return np.zeros(count(inputs), np.float32)
        return _scored(self._network, inputs)

    def save(self, path: Path) -> None:
        if self._network is None:
            raise ValueError(
                f"expected a model that has learned, got an empty one; fit it before {path}"
            )
        arrays = {name: x.numpy() for name, x in self._network.state_dict().items()}
        files.write(path, files.Header(self._name, files.features_key(self.reads)), arrays)

    def load(self, path: Path) -> None:
        with files.arrays_of(path, self._name, self.reads) as arrays:
            network = self._make(len(arrays["scale.mean"]))
            network.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in arrays.items()})
            self._base = self._network = network


class Scale(torch.nn.Module):
    """Columns of mean 0 and spread 1, as far as the rows it was prepared on go."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.mean = torch.nn.Buffer(torch.zeros(columns))
        self.spread = torch.nn.Buffer(torch.ones(columns))

    def prepare(self, rows: NDArray[np.float32]) -> None:
        spread = rows.std(axis=0)
        self.mean.copy_(torch.from_numpy(rows.mean(axis=0)))
        self.spread.copy_(torch.from_numpy(np.where(spread > 1e-3, spread, 1).astype(np.float32)))

    def forward(self, rows: NDArray[np.float32]) -> torch.Tensor:
        """Clipped, for other kernels may lie far outside."""
        scaled: torch.Tensor = (torch.from_numpy(rows) - self.mean) / self.spread
        return scaled.clamp(-5, 5)


def minibatches(
    groups: Groups, allowed: NDArray[np.bool_], steps: int, rng: np.random.Generator
) -> Iterator[NDArray[np.intp]]:
    """Row numbers of each minibatch: `ROWS` of each of `KERNELS` kernels."""
    rows = [np.flatnonzero(allowed & (groups == g)) for g in np.unique(groups[allowed])]
    for _ in range(steps):
        chosen = rng.choice(len(rows), min(KERNELS, len(rows)), replace=False)
        share = KERNELS * ROWS // len(chosen)
        yield np.concatenate(
            [rng.choice(rows[k], min(share, len(rows[k])), replace=False) for k in chosen]
        )


def _learning(
    network: Module, lesson: Lesson, allowed: NDArray[np.bool_], steps: int, rate: float
) -> Iterator[int]:
    """Numbers of the minibatches, from 1 on, each when it has been learned."""
    optimizer, rng = Adam(network.parameters(), rate), np.random.default_rng(0)
    labels, groups = log_scores(lesson.scores), lesson.groups
    for step, rows in enumerate(minibatches(groups, allowed, steps, rng), 1):
        _descend(network, optimizer, Lesson(taken(lesson.inputs, rows), labels[rows], groups[rows]))
        yield step


def _descend(network: Module, optimizer: Adam, batch: Lesson) -> None:
    """Along the gradient of a minibatch, whose scores are logarithms."""
    network.zero_grad()
    labels, groups = torch.from_numpy(batch.scores), torch.from_numpy(batch.groups)
    rank_loss(network.score(batch.inputs), labels, groups).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
    optimizer.step()


def rank_loss(predicted: torch.Tensor, labels: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Mean of log(1 + exp(worse - better)) over all pairs of one group, weighted by how far the
    labels are apart, up to a factor of two in time.
    """
    apart = labels[:, None] - labels[None, :]
    weight = apart.clamp(0, 1) * (groups[:, None] == groups[None, :])
    losses = softplus(predicted[None, :] - predicted[:, None])
    return (losses * weight).sum() / weight.sum().clamp(min=1e-6)


def _ranks(network: Module, lesson: Lesson) -> bool:
    """Whether it ranks better than chance, kernel by kernel."""
    some = lesson.of(slice(None, None, -(-len(lesson.scores) // JUDGED)))
    return mean_spearman(some.scores, _scored(network, some.inputs), some.groups) > 0


def _scored(network: Module, inputs: Inputs) -> NDArray[np.float32]:
    with torch.inference_mode():
        parts = [
            network.score(taken(inputs, slice(k, k + PREDICTED))).numpy()
            for k in range(0, count(inputs), PREDICTED)
        ]
    return np.concatenate([np.empty(0, np.float32), *parts])


def _width(inputs: Inputs) -> int:
    return int((inputs if isinstance(inputs, np.ndarray) else inputs.values).shape[-1])

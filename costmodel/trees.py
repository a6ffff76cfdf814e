"""Boosted trees that learn to rank: xgboost, pairwise, in a fraction of a second a batch."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from hlotune.costmodel.metrics import spearman

ROUNDS = 80
"""Trees added by one `fit`, at most."""
PATIENCE = 8
"""Rounds without a better ranking of the held-out rows, after which no more trees are grown."""
ROWS = 2500
"""Newest rows that one `fit` reads.  Keeps it under 0.3 s, whatever is known."""
HOLD_OUT = 5
"""One row in so many is held out to find the number of rounds."""
BLIND_ROUNDS = 20
"""Trees when there are too few rows to hold any out."""
FEWEST = 40
"""Rows from which on some are held out."""

THREADS = 1
"""A second one saves less than a quarter, and spins for seconds where others use the cores."""

PARAMETERS: dict[str, Any] = {
    "objective": "rank:pairwise",
    # Pairs are drawn at random for each row; the default takes pairs with the top rows alone,
    # and ranks worse.
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 8,
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 5,
    "eta": 0.2,
    "min_child_weight": 0.1,
    "nthread": THREADS,
    "seed": 0,
    "verbosity": 0,
    "disable_default_eval_metric": 1,
}


class Trees:
    """Fits on top of the loaded model's margin, if one was loaded, else from nothing."""

    def __init__(self) -> None:
        self._base: Any = None
        self._booster: Any = None

    def fit(
        self,
        features: NDArray[np.float32],
        scores: NDArray[np.float32],
        groups: NDArray[np.int32],
    ) -> None:
        order = np.argsort(groups[-ROWS:], kind="stable")
        rows = features[-ROWS:][order], scores[-ROWS:][order], groups[-ROWS:][order]
        if not _ranks_anything(*rows[1:]):
            return
        with xgboost.config_context(nthread=THREADS):
            rounds = self._rounds(*rows) if len(order) >= FEWEST else BLIND_ROUNDS
            self._booster = self._grow(_matrix(*rows), rounds)

    def _rounds(
        self,
        features: NDArray[np.float32],
        scores: NDArray[np.float32],
        groups: NDArray[np.int32],
    ) -> int:
        """The number of rounds after which the held-out rows are ranked best."""
        held = np.arange(len(scores)) % HOLD_OUT == HOLD_OUT - 1
        train = _matrix(features[~held], scores[~held], groups[~held])
        held_out = xgboost.DMatrix(features[held], scores[held], qid=groups[held], nthread=THREADS)
        booster = self._grow(train, ROUNDS, held_out)
        return max(1, int(booster.best_iteration) + 1 - self._base_rounds())

    def _grow(self, train: Any, rounds: int, held_out: Any = None) -> Any:
        stop = xgboost.callback.EarlyStopping(rounds=PATIENCE, metric_name="rank", maximize=True)
        return xgboost.train(
            PARAMETERS,
            train,
            num_boost_round=rounds,
            xgb_model=self._base,
            evals=[(held_out, "held_out")] if held_out else [],
            custom_metric=_rank if held_out else None,
            callbacks=[stop] if held_out else [],
            verbose_eval=False,
        )

    def _base_rounds(self) -> int:
        return 0 if self._base is None else int(self._base.num_boosted_rounds())

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        margin = self._booster.inplace_predict(features, predict_type="margin")
        return np.asarray(margin, np.float32)

    def save(self, path: Path) -> None:
        """Writes xgboost's JSON.  Raises ValueError where nothing was learned or loaded."""
        if self._booster is None:
            raise ValueError(
                f"expected a model that has learned, got an empty one; fit it before {path}"
            )
        path.write_bytes(bytes(self._booster.save_raw("json")))

    def load(self, path: Path) -> None:
        booster = xgboost.Booster({"nthread": THREADS})
        booster.load_model(bytearray(path.read_bytes()))
        self._base = self._booster = booster


def _matrix(
    features: NDArray[np.float32], scores: NDArray[np.float32], groups: NDArray[np.int32]
) -> Any:
    return xgboost.QuantileDMatrix(
        features,
        scores,
        qid=groups,
        max_bin=PARAMETERS["max_bin"],
        nthread=THREADS,
    )


def _ranks_anything(scores: NDArray[np.float32], groups: NDArray[np.int32]) -> bool:
    return any(np.ptp(scores[part]) > 0 for part in _parts(groups))


def _rank(margins: NDArray[np.float32], rows: Any) -> tuple[str, float]:
    """Mean Spearman correlation over the groups of the held-out rows."""
    scores, ends = rows.get_label(), rows.get_uint_info("group_ptr")
    spans = [slice(a, b) for a, b in pairwise(ends)]
    return "rank", float(np.mean([spearman(scores[s], margins[s]) for s in spans]))


def _parts(groups: NDArray[np.int32]) -> Iterator[slice]:
    """The rows of each group; groups are sorted."""
    ends = np.flatnonzero(np.diff(groups)) + 1
    for a, b in zip([0, *ends], [*ends, len(groups)], strict=True):
        yield slice(int(a), int(b))

"""Several forests as one xgboost model: the weighted sum of what they say."""

import json
from collections.abc import Sequence
from typing import Any

import xgboost


def merged(forests: Sequence[xgboost.Booster], weights: Sequence[float]) -> xgboost.Booster:
    """One tree a round, the trees of each forest in its order, behind those of the one before.

    All but the trees is the first one's: its objective, its columns, what it begins with.
    """
    said = [json.loads(bytes(f.save_raw("json"))) for f in forests]
    result = said[0]
    parts = zip(said, weights, strict=True)
    trees = [_scaled(tree, weight) for one, weight in parts for tree in _model(one)["trees"]]
    _model(result).update(
        trees=[{**tree, "id": number} for number, tree in enumerate(trees)],
        tree_info=[0] * len(trees),
        iteration_indptr=list(range(len(trees) + 1)),
    )
    _model(result)["gbtree_model_param"]["num_trees"] = str(len(trees))
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(json.dumps(result).encode()))
    return booster


def _scaled(tree: dict[str, Any], weight: float) -> dict[str, Any]:
    """Leaves keep their values where tests keep what they compare with."""
    values = zip(tree["left_children"], tree["split_conditions"], strict=True)
    return {
        **tree,
        "split_conditions": [x if child >= 0 else weight * x for child, x in values],
        "base_weights": [weight * x for x in tree["base_weights"]],
    }


def _model(said: dict[str, Any]) -> dict[str, Any]:
    model: dict[str, Any] = said["learner"]["gradient_booster"]["model"]
    return model

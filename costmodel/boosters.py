"""Boosters out of files: xgboost ends its process at some that are damaged, so they are checked."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.files import Damaged
from hlotune.costmodel.ubjson import decoded

_NO_PARENT = 2**31 - 1
_OF_NODES = (
    "left_children", "right_children", "parents", "split_indices", "split_conditions",
    "split_type", "default_left", "base_weights", "loss_changes", "sum_hessian",
)  # fmt: skip
"""What a tree has of each node."""
_OF_CATEGORIES = (
    "categories", "categories_nodes", "categories_segments", "categories_sizes",
)  # fmt: skip
_OBJECTIVES = ("reg:squarederror", "rank:pairwise")


def checked_booster(array: NDArray[np.uint8]) -> bytearray:
    """A booster as `Booster.save_raw("ubj")` gave it, out of a file, for `Booster.load_model`.

    Raises:
        Damaged: it is none, or its trees are none that xgboost grows on numbers.
    """
    stored = array.tobytes()
    try:
        _check(_object(decoded(stored)))
    except KeyError as error:
        raise Damaged(f"a booster without {error.args[0]!r}") from error
    except TypeError as error:
        raise Damaged("a booster with a value of another kind") from error
    return bytearray(stored)


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Damaged(f"a booster with {type(value).__name__} in the place of an object")
    return value


def _check(said: Mapping[str, Any]) -> None:
    version = said["version"]
    if len(version) != 3:
        raise Damaged("a booster of no version")
    learner = _object(said["learner"])
    numbers = {k: _number(v) for k, v in _object(learner["learner_model_param"]).items()}
    if numbers["num_class"] != 0 or numbers["num_target"] != 1:
        raise Damaged("a booster of several outputs")
    if _object(learner["objective"])["name"] not in _OBJECTIVES:
        raise Damaged("a booster of an unknown objective")
    booster = _object(learner["gradient_booster"])
    if booster["name"] != "gbtree":
        raise Damaged("a booster of no trees")
    _check_forest(_object(booster["model"]), int(numbers["num_feature"]))


def _number(text: object) -> float:
    """xgboost writes parameters as text: `118`, `[5E-1]`."""
    number = float(str(text).strip("[]"))
    if not np.isfinite(number):
        raise Damaged(f"a booster with the parameter {text}")
    return number


def _check_forest(model: Mapping[str, Any], columns: int) -> None:
    trees, rounds = model["trees"], np.asarray(model["iteration_indptr"])
    parameters = _object(model["gbtree_model_param"])
    if _number(parameters["num_trees"]) != len(trees):
        raise Damaged(f"a booster of {len(trees)} trees that says {parameters['num_trees']}")
    if _number(parameters["num_parallel_tree"]) != 1 or not np.array_equal(
        rounds, np.arange(len(trees) + 1)
    ):
        raise Damaged("a booster of other than one tree a round")
    if len(model["tree_info"]) != len(trees) or np.any(model["tree_info"]):
        raise Damaged("a booster with trees of several outputs")
    for number, tree in enumerate(trees):
        try:
            _check_tree(_object(tree), number, columns)
        except Damaged as error:
            raise Damaged(f"{error} in tree {number}") from error


def _check_tree(tree: Mapping[str, Any], number: int, columns: int) -> None:
    said = {k: _number(v) for k, v in _object(tree["tree_param"]).items()}
    nodes = int(said["num_nodes"])
    sizes = {name: np.shape(tree[name]) for name in _OF_NODES}
    if wrong := [name for name, shape in sizes.items() if shape != (nodes,)]:
        raise Damaged(f"{sizes[wrong[0]]} {wrong[0]} of {nodes} nodes")
    if any(len(tree[name]) for name in _OF_CATEGORIES) or np.any(tree["split_type"]):
        raise Damaged("categories")
    if (tree["id"], said["num_feature"], said["num_deleted"]) != (number, columns, 0):
        raise Damaged("another number, other features or deleted nodes")
    if said["size_leaf_vector"] not in (0, 1):
        raise Damaged("leaves of several values")
    left, right, parents = (_integers(tree[name]) for name in _OF_NODES[:3])
    _check_shape(left, right, parents)
    tests, bounds = _integers(tree["split_indices"]), np.asarray(tree["split_conditions"])
    if np.any((tests < 0) | (tests >= columns)):  # of leaves, too: training reads them all
        raise Damaged(f"a test of a feature beyond {columns}")
    if not np.isfinite(bounds).all():
        raise Damaged("a value that is no finite number")


def _integers(values: NDArray[Any]) -> NDArray[np.int64]:
    if np.asarray(values).dtype.kind not in "iu":
        raise Damaged("numbers of nodes that are not whole")
    return np.asarray(values, np.int64)


def _check_shape(
    left: NDArray[np.int64], right: NDArray[np.int64], parents: NDArray[np.int64]
) -> None:
    """Each node but the first is the child of one that stands before it: there is no circle."""
    nodes = np.arange(len(left))
    inner = nodes[left != -1]
    children = np.concatenate([left[inner], right[inner]])
    if not np.array_equal(np.sort(children), nodes[1:]) or np.any(right[left == -1] != -1):
        raise Damaged("a child that is none of its nodes, or of two")
    if np.any(children <= np.concatenate([inner, inner])):
        raise Damaged("a child before its parent")
    above = np.full(len(nodes), _NO_PARENT)
    above[left[inner]] = above[right[inner]] = inner
    if not len(nodes) or not np.array_equal(above, parents):
        raise Damaged("a node of another parent")

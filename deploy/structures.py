"""Pytrees of tuples, lists and dicts of texts as JSON, and back.

A container is a list with its kind in front: `["tuple", ["leaf"], ["none"]]`. None stands for the
structure of a program that takes or gives flat arrays.
"""

from typing import Any

import jax

from hlotune.schedules.errors import ProgramError

DEEPEST = 100
"""Containers inside one another that a file may have: reading them takes as many Python frames."""


def structure_of(tree: Any, what: str) -> Any:
    """A pytree as JSON.

    Raises ProgramError where it has other containers, or too many inside one another.
    """
    if tree is None:
        return None
    found = _encoded(jax.tree.unflatten(tree, range(tree.num_leaves)))
    if not is_structure(found) or tree_of(found) != tree:
        raise ProgramError(
            f"expected {what} in tuples, lists and dicts of texts, at most {DEEPEST} inside one "
            f"another, got {str(tree)[:200]}; wrap the function in one that takes and gives these"
        )
    return found


def tree_of(data: Any) -> Any:
    """The pytree that JSON for which `is_structure` holds describes."""
    return None if data is None else jax.tree.structure(_decoded(data))


def is_structure(data: Any, deepest: int = DEEPEST) -> bool:
    """Whether JSON is what `structure_of` gives for some pytree."""
    if not isinstance(data, list) or not data or deepest == 0:
        return False
    kind, *parts = data
    if kind in ("leaf", "none"):
        return not parts
    if kind == "dict":
        if len(parts) != 1 or not isinstance(parts[0], dict):
            return False
        parts = list(parts[0].values())
    elif kind not in ("tuple", "list"):
        return False
    return all(is_structure(part, deepest - 1) for part in parts)


def _encoded(value: Any) -> Any:
    """Any value but None and these containers is a leaf."""
    if value is None:
        return ["none"]
    if type(value) in (tuple, list):
        return [type(value).__name__, *map(_encoded, value)]
    if type(value) is dict:
        return ["dict", {str(k): _encoded(v) for k, v in value.items()}]
    return ["leaf"]


def _decoded(data: Any) -> Any:
    kind, *parts = data
    if kind == "dict":
        return {k: _decoded(v) for k, v in parts[0].items()}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(_decoded, parts))
    return None if kind == "none" else 0

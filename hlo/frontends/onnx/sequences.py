"""Sequences of tensors whose length is known while the model is read, and optional values."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of


@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """A value that is several tensors in order."""

    items: tuple[Value, ...]


def construct(node: Node, *tensors: Value) -> Any:
    return (TensorSequence(tensors),)


def at(node: Node, sequence: Value, position: Any) -> Any:
    items = _items(node, sequence)
    return items[_place(node, position, len(items))]


def length(node: Node, sequence: Value) -> Any:
    return np.array(len(_items(node, sequence)), np.int64)


def insert(node: Node, sequence: Value, tensor: Value, position: Any = None) -> Any:
    """In front of the tensor at a position, at the end where none is given."""
    items = _items(node, sequence)
    place = len(items) if position is None else int(np.asarray(position))
    if not -len(items) <= place <= len(items):
        raise node.refusal(f"at position {place} of {len(items)}", "give one that is there")
    place += len(items) if place < 0 else 0
    return (TensorSequence((*items[:place], tensor, *items[place:])),)


def erase(node: Node, sequence: Value, position: Any = None) -> Any:
    """Without the tensor at a position, the last one where none is given."""
    items = _items(node, sequence)
    place = _place(node, -1 if position is None else position, len(items))
    return (TensorSequence((*items[:place], *items[place + 1 :])),)


def concatenated(node: Node, sequence: Value) -> Any:
    """The tensors one behind the other, or side by side along a new axis."""
    items = [jnp.asarray(x) for x in _items(node, sequence)]
    join = jnp.stack if node.get("new_axis", 0) else jnp.concatenate
    return join(items, axis=node.require("axis"))


def split(node: Node, x: Value, sizes: Any = None) -> Any:
    """Parts along an axis: of one size, of several, or of 1, whose axis may be left out."""
    axis = axis_of(node.get("axis", 0), x.ndim)
    extent = x.shape[axis]
    if sizes is None:
        parts = np.split(np.arange(extent), extent)
    elif sizes.ndim == 0:
        if int(sizes) < 1:
            raise node.refusal(f"into parts of {int(sizes)}", "give a size above 0")
        parts = [np.arange(k, min(k + int(sizes), extent)) for k in range(0, extent, int(sizes))]
    else:
        if sizes.min(initial=0) < 0 or sizes.sum() != extent:
            raise node.refusal(
                f"into parts of {sizes.tolist()} of an axis of {extent}", "give sizes that add up"
            )
        parts = np.split(np.arange(extent), np.cumsum(sizes)[:-1])
    found = [jnp.asarray(x).take(part, axis=axis) for part in parts]
    if sizes is None and not node.get("keepdims", 1):
        found = [jnp.squeeze(part, axis) for part in found]
    return (TensorSequence(tuple(found)),)


def has_element(node: Node, value: Value = None) -> Any:
    return np.array(value is not None)


def get_element(node: Node, value: Value) -> Any:
    return (value,)


def _items(node: Node, value: Value) -> tuple[Value, ...]:
    """Raises ProgramError for a value that is no sequence."""
    if not isinstance(value, TensorSequence):
        raise node.refusal("of a value that is no sequence", "the model is damaged: write it again")
    return value.items


def _place(node: Node, position: Any, count: int) -> int:
    """A position counted from the front."""
    place = int(np.asarray(position))
    if not -count <= place < count:
        raise node.refusal(f"of position {place} among {count}", "give one that is there")
    return place % count


ROWS = {
    "ConcatFromSequence": Operator(concatenated),
    "OptionalGetElement": Operator(get_element),
    "OptionalHasElement": Operator(has_element),
    "SequenceAt": Operator(at, {1: "position"}),
    "SequenceConstruct": Operator(construct),
    "SequenceEmpty": Operator(construct),
    "SequenceErase": Operator(erase, {1: "position"}),
    "SequenceInsert": Operator(insert, {2: "position"}),
    "SequenceLength": Operator(length),
    "SplitToSequence": Operator(split, {1: "sizes of parts"}),
}

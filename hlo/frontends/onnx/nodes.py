"""What a rule of an operator is given: its node, and values that are known or traced."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.schedules.errors import ProgramError

Value = Any
"""`np.ndarray` of a value that is known while the model is read, `jax.Array` of any other."""
Rule = Callable[..., Any]
"""Takes a node and its inputs, None for one that is left out; gives a value, or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table of operators."""

    rule: Rule
    known: Mapping[int, str] = field(default_factory=dict)
    """Inputs whose values the result's shape depends on, by position: the rule gets arrays of
    NumPy there."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One node of a graph."""

    operator: str
    """The name of the operator, behind its domain where that is not ONNX's own."""
    name: str
    opset: int
    """Version of the operator's domain that the model asks for."""
    attributes: Mapping[str, Any]
    """Numbers, texts, lists of them, arrays of NumPy and graphs."""
    wanted: tuple[bool, ...]
    """Which of its results the graph uses."""
    run: Callable[[Any, Sequence[Value]], list[Value]]
    """Gives the results of a graph among the attributes, of its inputs."""

    def get(self, attribute: str, default: Any = None) -> Any:
        return self.attributes.get(attribute, default)

    def require(self, attribute: str) -> Any:
        """Raises ProgramError for an attribute that is not there."""
        if attribute not in self.attributes:
            raise self.refusal(f"without the attribute {attribute}", "write the model again")
        return self.attributes[attribute]

    def wants(self, result: int) -> bool:
        """Whether the graph uses a result."""
        return result < len(self.wanted) and self.wanted[result]

    def known(self, value: Value, what: str) -> np.ndarray[Any, Any]:
        """A value that the shapes of results depend on; raises ProgramError where it is traced."""
        if not is_known(value):
            raise self.refusal(
                f"whose {what} is computed from arguments of the program",
                "hlotune takes static shapes: make it an initialiser of the model",
            )
        return np.asarray(value)

    def refusal(self, why: str, advice: str) -> ProgramError:
        called = f"{self.operator} (node {self.name})" if self.name else self.operator
        return ProgramError(
            f"expected ONNX operators that hlotune computes, got {called} {why}; {advice}"
        )


def is_known(value: Value) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a value of {rank} axes")
    return axis % max(rank, 1)


def cast(value: Value, dtype: Any) -> jax.Array:
    """A value in another element type; the value itself where it has that type."""
    array = jnp.asarray(value)
    return array if array.dtype == dtype else array.astype(dtype)

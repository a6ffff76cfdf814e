"""An operation with what follows it in a network, as one function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_operations import ArrayLike, computed, result_of
from benchmarks.operations import Array, Convolution, Operation, Shape

Epilogue = Literal["", "bias+relu", "scale+bias+relu", "bias+residual+relu", "bias+gelu"]

VECTORS = ("scale", "bias")
"""Parts with an element for each channel."""


@dataclass(frozen=True, slots=True)
class Fused:
    """An operation and its epilogue.

    Args:
        constant: whether its parameters, the weights and what has an element a channel, are
            constants of the program.
    """

    operation: Operation
    epilogue: Epilogue = ""
    constant: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.epilogue.split("+")) if self.epilogue else ()

    @property
    def parameters(self) -> int:
        """How many arguments are parameters; they come first."""
        return 1 + sum(part in VECTORS for part in self.parts)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of weights, vectors, input and residual."""
        weights, x = self.operation.shapes
        if not self.parts:
            return weights, x
        result: Shape = result_of(self.operation).shape
        vectors = [self._vector(result) for part in self.parts if part in VECTORS]
        return weights, *vectors, x, *[result for part in self.parts if part == "residual"]

    def _vector(self, result: Shape) -> Shape:
        """The shape of a vector along the channels that is broadcast to the result."""
        first = isinstance(self.operation, Convolution) and self.operation.channels == "first"
        return (result[1], *[1] * (len(result) - 2)) if first else result[-1:]

    def inputs(self, seed: int = 0) -> tuple[Array, ...]:
        """Random values of all arguments."""
        rng = np.random.default_rng(seed)
        return tuple(rng.normal(size=shape).astype(np.float32) for shape in self.shapes)

    def __call__(self, weights: ArrayLike, *others: ArrayLike) -> jax.Array:
        vectors = self.parameters - 1
        operands = iter((*others[:vectors], *others[vectors + 1 :]))
        y = computed(self.operation, weights, others[vectors])
        for part in self.parts:
            y = PARTS[part](y, operands)
        return y


PARTS: dict[str, Callable[[jax.Array, Iterator[ArrayLike]], jax.Array]] = {
    "scale": lambda y, operands: y * next(operands),
    "bias": lambda y, operands: y + next(operands),
    "residual": lambda y, operands: y + next(operands),
    "relu": lambda y, operands: jnp.maximum(y, 0),
    "gelu": lambda y, operands: jax.nn.gelu(y),
}

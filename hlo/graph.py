"""A StableHLO function as plain values: what everything in this room but `hlo/mlir/module.py` works
on.

Values of a function are numbered; `types[v]` is the type of value `v`.  Operations are in an order
in which every operand is defined before its use.  A region (the body of a reduce, of a while) is a
Graph of its own whose ops may refer to outer values only through `captures`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES, XLA_ALONE


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes that the array takes in memory."""
        size = BYTES.get(self.dtype)
        return self.elements * (numpy_dtype(self.dtype).itemsize if size is None else size)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{d}x' for d in self.shape)}{self.dtype}>"


@dataclass(frozen=True, slots=True)
class Literal:
    """The value of a constant."""

    type: TensorType
    data: bytes | memoryview = field(hash=False)
    """Row-major; of one element where all are equal.  Large weights share the memory of others."""
    splat: bool
    """Whether all elements are equal."""

    def array(self) -> NDArray[np.generic]:
        """The values in NumPy's type for the element, of the type's shape."""
        flat = np.frombuffer(self.data, dtype=numpy_dtype(self.type.dtype))
        if self.splat:
            return np.broadcast_to(flat.reshape(()), self.type.shape)
        return flat.reshape(self.type.shape)


Attribute = int | float | bool | str | Literal | tuple["Attribute", ...]


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    """The name with its dialect: `stablehlo.add`."""
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Sorted by name, defaults filled in; only what the operation means."""
    regions: tuple["Graph", ...] = ()

    def __getitem__(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(
            f"{self.name} has no attribute {name!r}; it has {[k for k, _ in self.attributes]}"
        )


@dataclass(frozen=True, slots=True)
class Graph:
    types: tuple[TensorType, ...]
    arguments: tuple[int, ...]
    ops: tuple[Op, ...]
    results: tuple[int, ...]
    constants: frozenset[int] = frozenset()
    """Arguments marked `hlotune.constant`: their values are known when the program is loaded."""
    captures: tuple[tuple[int, int], ...] = ()
    """(value here, value of the enclosing graph), for regions."""

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        return tuple(self.types[a] for a in self.arguments)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        return tuple(self.types[r] for r in self.results)


def needed(graph: Graph, results: Sequence[int]) -> Graph:
    """The part of a function that some of its results need, with the same numbers of values.

    Its arguments are those that are read.
    """
    wanted, ops = set(results), list[Op]()
    for op in reversed(graph.ops):
        if not wanted.isdisjoint(op.results):
            ops.append(op)
            wanted |= {*op.operands, *(v for region in op.regions for _, v in region.captures)}
    arguments = tuple(a for a in graph.arguments if a in wanted)
    return replace(graph, arguments=arguments, ops=tuple(ops[::-1]), results=tuple(results))


@cache
def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """NumPy's type for an element type; `i1` is bool, `bf16` and others come from ml_dtypes."""
    import ml_dtypes

    name = "bfloat16" if dtype == "bf16" else XLA_ALONE.get(dtype)
    if name is not None:
        return np.dtype(getattr(ml_dtypes, name, name))
    names = {"f64": "f8", "f32": "f4", "f16": "f2", "i1": "?"}
    if dtype in names:
        return np.dtype(names[dtype])
    sign, bits = ("u", dtype[2:]) if dtype.startswith("ui") else ("i", dtype[1:])
    return np.dtype(f"{sign}{int(bits) // 8}")

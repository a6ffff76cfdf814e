"""A StableHLO function as plain values: what everything in this room but `mlir.py` works on.

Values of a function are numbered; `types[v]` is the type of value `v`.  Operations are in an order in which every
operand is defined before its use.  A region (the body of a reduce, of a while) is a Graph of its own whose ops may
refer to outer values only through `captures`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.dtype]

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{d}x' for d in self.shape)}{self.dtype}>"


@dataclass(frozen=True, slots=True)
class Literal:
    """The value of a constant: raw row-major bytes, or one element's bytes where all are equal (`splat`)."""

    type: TensorType
    data: bytes
    splat: bool

    def array(self) -> NDArray[np.generic]:
        """The values in NumPy's type for the element (`ml_dtypes` for bf16), of the type's shape."""
        flat = np.frombuffer(self.data, dtype=numpy_dtype(self.type.dtype))
        return (
            np.broadcast_to(flat.reshape(()), self.type.shape)
            if self.splat
            else flat.reshape(self.type.shape)
        )


Attribute = int | float | bool | str | Literal | tuple["Attribute", ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.  `attributes` are sorted by name, defaults filled in, and hold meaning only."""

    name: str
    """With its dialect: `stablehlo.add`."""
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
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


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """NumPy's type for an element type; `i1` is bool, `bf16` comes from ml_dtypes."""
    import ml_dtypes

    names = {"f64": "f8", "f32": "f4", "f16": "f2", "i1": "?", "bf16": ml_dtypes.bfloat16}
    if dtype in names:
        return np.dtype(names[dtype])
    sign, bits = ("u", dtype[2:]) if dtype.startswith("ui") else ("i", dtype[1:])
    return np.dtype(f"{sign}{int(bits) // 8}")

"""Nodes of an ONNX graph as they are written, and the tensors between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import prod
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from hlotune.hlo.graph import Graph, Op, TensorType, numpy_dtype
from hlotune.schedules.errors import ProgramError

OPSET = 18
"""The version of ONNX's operators; it is of 2022, since runtimes of accelerators lag behind."""
TYPES: dict[str, int] = {
    name: getattr(onnx.TensorProto, of_onnx)
    for name, of_onnx in {
        "f64": "DOUBLE", "f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16", "i1": "BOOL",
        "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
        "ui8": "UINT8", "ui16": "UINT16", "ui32": "UINT32", "ui64": "UINT64",
    }.items()
}  # fmt: skip
"""Element types that are written, by StableHLO's name."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the ONNX graph, with its own shape: 1 where a broadcast has yet to be written."""

    name: str
    shape: Shape
    dtype: str


Rule = Callable[["Writer", Op], Sequence[Tensor]]
"""Writes an operation and gives its results, in order; raises ProgramError by `refused`."""


def refused(op: Op, expected: str, got: object) -> ProgramError:
    """The error for an operation that has a rule, but not in this form."""
    return ProgramError(
        f"expected {expected} to write the operation {op.name} to ONNX, got {got}; change that "
        "part of the program, or export the parts around it"
    )


@dataclass(slots=True)
class Shared:
    """What all graphs of one model share."""

    rules: dict[str, Rule]
    numbers: Any = field(default_factory=count)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Values by the name of their tensor."""
    known: dict[tuple[bytes, Shape, str], Tensor] = field(default_factory=dict)
    """Small constants, which are written once."""


SMALL_BYTES = 4096


@dataclass(slots=True)
class Writer:
    """Writes one graph of StableHLO; `nodes` grows by what its rules write."""

    graph: Graph
    shared: Shared
    nodes: list[Any] = field(default_factory=list)
    values: dict[int, Tensor] = field(default_factory=dict)

    def write(self) -> list[Tensor]:
        """Writes all operations; gives the results, with their full shapes."""
        for op in self.graph.ops:
            results = self.shared.rules[op.name](self, op)
            self.values |= dict(zip(op.results, results, strict=True))
        return [self.full(v) for v in self.graph.results]

    # Values of the program.

    def type(self, value: int) -> TensorType:
        return self.graph.types[value]

    def short(self, value: int) -> Tensor:
        """A value, with extents of 1 where it is broadcast: for operations that broadcast."""
        return self.values[value]

    def full(self, value: int) -> Tensor:
        """A value with all of its extents."""
        self.values[value] = self.expand(self.values[value], self.type(value).shape)
        return self.values[value]

    def literal(self, value: int) -> NDArray[Any] | None:
        """The values of a constant of the program, with extents of 1 where they are equal."""
        return self.shared.constants.get(self.values[value].name)

    # Nodes.

    def node(
        self, operator: str, inputs: Sequence[Tensor], dtype: str, shape: Shape, **attributes: Any
    ) -> Tensor:
        return self.several(operator, inputs, [(dtype, shape)], **attributes)[0]

    def several(
        self,
        operator: str,
        inputs: Sequence[Tensor | None],
        results: Sequence[tuple[str, Shape]],
        **attributes: Any,
    ) -> list[Tensor]:
        """A node with several results; an input that is left out is None.

        It is of f32 between casts where the operator does not take a narrow type of float.
        """
        first = inputs[0].dtype if inputs and inputs[0] else ""
        if first in ("f16", "bf16") and not _takes(operator, TYPES[first]):
            wide = [x and self.cast(x, "f32" if x.dtype == first else x.dtype) for x in inputs]
            types = [("f32" if dtype == first else dtype, shape) for dtype, shape in results]
            made = self.several(operator, wide, types, **attributes)
            return [self.cast(x, dtype) for x, (dtype, _) in zip(made, results, strict=True)]
        made = [self.fresh(dtype, shape) for dtype, shape in results]
        names = [x.name if x else "" for x in inputs]
        self.nodes.append(helper.make_node(operator, names, [x.name for x in made], **attributes))
        return made

    def fresh(self, dtype: str, shape: Shape) -> Tensor:
        """A tensor that nothing gives yet."""
        require_type(dtype)
        return Tensor(f"t{next(self.shared.numbers)}", shape, dtype)

    def constant(self, values: Any, dtype: str) -> Tensor:
        array = np.asarray(values, numpy_dtype(dtype))
        key = (array.tobytes(), array.shape, dtype) if array.nbytes <= SMALL_BYTES else None
        if key in self.shared.known:
            return self.shared.known[key]
        made = self.fresh(dtype, array.shape)
        self.shared.constants[made.name] = array
        if key is not None:
            self.shared.known[key] = made
        return made

    # Nodes that most rules need.

    def numbers(self, values: Sequence[int]) -> Tensor:
        return self.constant(list(values), "i64")

    def expand(self, x: Tensor, shape: Shape) -> Tensor:
        if x.shape == shape:
            return x
        return self.node("Expand", [x, self.numbers(shape)], x.dtype, shape)

    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        if x.shape == shape:
            return x
        if x.name in self.shared.constants:
            return self.constant(self.shared.constants[x.name].reshape(shape), x.dtype)
        return self.node("Reshape", [x, self.numbers(shape)], x.dtype, shape, allowzero=1)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(len(x.shape))):
            return x
        shape = tuple(x.shape[d] for d in permutation)
        if x.name in self.shared.constants:
            array = self.shared.constants[x.name].transpose(permutation)
            return self.constant(np.ascontiguousarray(array), x.dtype)
        return self.node("Transpose", [x], x.dtype, shape, perm=list(permutation))

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        return self.node("Cast", [x], dtype, x.shape, to=TYPES[require_type(dtype)])

    def of(self, operator: str, *inputs: Tensor, dtype: str = "", **attributes: Any) -> Tensor:
        """An elementwise node, whose inputs are broadcast; of the type of the first by default."""
        shape = np.broadcast_shapes(*(x.shape for x in inputs))
        return self.node(operator, inputs, dtype or inputs[0].dtype, shape, **attributes)

    def cut(
        self, x: Tensor, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
    ) -> Tensor:
        """A slice with steps above zero."""
        shape = tuple(
            max(0, -(-(high - low) // step))
            for low, high, step in zip(starts, limits, steps, strict=True)
        )
        if shape == x.shape:
            return x
        given = [self.numbers(v) for v in (starts, limits, range(len(shape)), steps)]
        return self.node("Slice", [x, *given], x.dtype, shape)

    def pad(self, x: Tensor, lows: Sequence[int], highs: Sequence[int], value: Tensor) -> Tensor:
        """Padding by a scalar; amounts below zero cut off, of what the other side adds too."""
        amounts = [max(0, n) for n in (*lows, *highs)]
        rank = len(x.shape)
        shape = tuple(n + amounts[d] + amounts[rank + d] for d, n in enumerate(x.shape))
        if any(amounts):
            x = self.node("Pad", [x, self.numbers(amounts), value], x.dtype, shape)
        starts = [max(0, -low) for low in lows]
        limits = [n + min(0, high) for n, high in zip(shape, highs, strict=True)]
        return self.cut(x, starts, limits, [1] * rank)

    def spread(self, x: Tensor, between: Sequence[int], value: Tensor) -> Tensor:
        """With so many scalars between each two neighbours of every axis."""
        if not any(between):
            return x
        rank = len(between)
        pairs = self.reshape(x, tuple(m for n in x.shape for m in (n, 1)))
        highs = [m for k in between for m in (0, k)]
        wide = self.pad(pairs, [0] * 2 * rank, highs, value)
        whole = tuple(n * (k + 1) for n, k in zip(x.shape, between, strict=True))
        limits = [max(0, n - k) for n, k in zip(whole, between, strict=True)]
        return self.cut(self.reshape(wide, whole), [0] * rank, limits, [1] * rank)

    # Regions.

    def inline(self, region: Graph, arguments: Sequence[Tensor]) -> list[Tensor]:
        """The nodes of a region, written here."""
        return self._inside(region, arguments, self.nodes).write()

    def subgraph(self, region: Graph, arguments: Sequence[Tensor]) -> "tuple[Writer, list[Tensor]]":
        """The nodes of a region, written apart: what wrote them, and the results."""
        inside = self._inside(region, arguments, [])
        return inside, inside.write()

    def _inside(self, region: Graph, arguments: Sequence[Tensor], nodes: list[Any]) -> "Writer":
        given = dict(zip(region.arguments, arguments, strict=True))
        outer = {here: self.values[there] for here, there in region.captures}
        return Writer(region, self.shared, nodes, given | outer)

    def graph_of(self, name: str, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> Any:
        """The graph of the nodes, its results under names of its own."""
        own = [self.node("Identity", [x], x.dtype, x.shape) for x in results]
        return helper.make_graph(self.nodes, name, list(map(info, inputs)), list(map(info, own)))


@cache
def _takes(operator: str, type_number: int) -> bool:
    """Whether the first input of an operator may have a type, by its number."""
    kind = onnx.TensorProto.DataType.Name(type_number).lower()
    return f"tensor({kind})" in onnx.defs.get_schema(operator, OPSET).inputs[0].types


def require_type(dtype: str) -> str:
    if dtype not in TYPES:
        raise ProgramError(
            f"expected element types that ONNX models have ({', '.join(TYPES)}), got {dtype}; "
            "convert what has it in the program"
        )
    return dtype


def info(x: Tensor) -> Any:
    return helper.make_tensor_value_info(x.name, TYPES[x.dtype], list(x.shape))


def initializer(name: str, array: NDArray[Any]) -> Any:
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def ints(op: Op, name: str) -> tuple[int, ...]:
    return cast(tuple[int, ...], op[name])


def number(op: Op, name: str) -> int:
    return cast(int, op[name])


def size(shape: Sequence[int]) -> int:
    return prod(shape)

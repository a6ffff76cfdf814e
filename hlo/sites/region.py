"""What cutting asks of one region of a program, and the groups that are cut out of it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal as Choice

from hlotune.hlo.canonical import INLINE_ELEMENTS, places
from hlotune.hlo.constants import literal_of
from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.to_compute.axis_names import axis_names
from hlotune.schedules.dtypes import BYTES, accumulator, has_kernels, is_float
from hlotune.schedules.ir.operations import OPERATIONS

BITS = "stablehlo.bitcast_convert"
UNROUNDED = frozenset({
    "stablehlo.broadcast_in_dim", "stablehlo.clamp", "stablehlo.concatenate", "stablehlo.constant",
    "stablehlo.dynamic_slice", "stablehlo.gather", "stablehlo.pad", "stablehlo.reshape",
    "stablehlo.reverse", "stablehlo.select", "stablehlo.slice", "stablehlo.transpose",
})  # fmt: skip
"""Operations that give operands as they are, beside those whose row says so."""
Pattern = Choice[
    "attention", "contraction", "elementwise", "reduction", "rows", "window", "cumulative"
]
"""What a group is, recognised from the graph."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operations of one region, by index, that may become one kernel."""

    root: int
    """The operation that it was grown from."""
    members: frozenset[int]
    pattern: Pattern
    parts: tuple[frozenset[int], ...] = ()
    """Where it does the same to many arrays, the members for each."""


@dataclass(slots=True)
class Region:
    """What growing asks about one graph.  Sets of operations are bits of an int."""

    graph: Graph
    producers: dict[int, int] = field(default_factory=dict)
    users: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    ancestors: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    """Longest way from an argument."""
    order: dict[int, int] = field(default_factory=dict)
    """Places in the canonical text: where equals meet they decide, not the order of statements."""
    narrow: dict[int, bool] = field(default_factory=dict)
    named: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = places(self.graph)
        for i, op in enumerate(self.graph.ops):
            above = depth = 0
            for value in reads(op):
                self.users[value].add(i)
                producer = self.producers.get(value)
                if producer is not None:
                    above |= self.ancestors[producer] | 1 << producer
                    depth = max(depth, self.depths[producer] + 1)
            self.ancestors.append(above)
            self.depths.append(depth)
            self.producers.update(dict.fromkeys(op.results, i))

    def type(self, value: int) -> TensorType:
        return self.graph.types[value]

    def axis_names(self) -> dict[int, tuple[str, ...]]:
        """For each value a name for each of its dimensions, those of other extents tied too."""
        if not self.named:
            self.named.update(axis_names(self.graph, loose=True))
        return self.named

    def has_kernels(self, op: Op) -> bool:
        """Whether kernels may have the element types of all that an operation reads and gives.

        Bits in another type may be of types that are computed in as they are, of one width, and of
        numbers that are not rounded: others have other last bits in another kernel.
        """
        types = [self.type(v).dtype for v in (*op.operands, *op.results)]
        if not all(map(has_kernels, types)):
            return False
        alike = len({BYTES[t] for t in types}) == 1 and all(accumulator(t) == t for t in types)
        return op.name != BITS or (alike and self._has_known_bits(op.operands[0]))

    def _has_known_bits(self, value: int) -> bool:
        """Whether nothing that computes a value rounds: all right kernels give it the same bits."""
        waiting, seen = [value], {value}
        while waiting:
            op = self.producer(waiting.pop())
            if op is None or not is_float(self.type(op.results[0]).dtype):
                continue
            row = OPERATIONS.get(op.name.partition(".")[2])
            kind = row.error.kind if row and row.error else ""
            if kind == "step" or op.name == BITS:
                continue
            if kind not in ("exact", "extreme") and op.name not in UNROUNDED:
                return False
            waiting += set(op.operands) - seen
            seen.update(op.operands)
        return True

    def producer(self, value: int) -> Op | None:
        index = self.producers.get(value)
        return None if index is None else self.graph.ops[index]

    def is_narrow(self, value: int) -> bool:
        """Whether a value is elementwise of constants and broadcasts of smaller tensors."""
        if value not in self.narrow:
            op = self.producer(value)
            self.narrow[value] = op is not None and (
                is_cloned_constant(op)
                or self.enlarges(op)
                or (op.name in KERNELS_ELEMENTWISE and all(self.is_narrow(v) for v in op.operands))
            )
        return self.narrow[value]

    def enlarges(self, op: Op) -> bool:
        """Whether an operation is a broadcast of a smaller tensor."""
        if op.name != "stablehlo.broadcast_in_dim":
            return False
        return self.type(op.operands[0]).elements < self.type(op.results[0]).elements

    def waits_for(self, value: int, members: int) -> bool:
        """Whether a value is computed by, or from, one of the members."""
        index = self.producers.get(value)
        return index is not None and bool((self.ancestors[index] | 1 << index) & members)


def reads(op: Op) -> Iterable[int]:
    """The values that an operation reads, also from inside its regions."""
    yield from op.operands
    for region in op.regions:
        yield from (outer for _, outer in region.captures)


def is_cloned_constant(op: Op) -> bool:
    """Splats, and constants of few elements, are written into the kernel itself."""
    if op.name != "stablehlo.constant":
        return op.name == "stablehlo.iota"
    literal = literal_of(op)
    return literal is not None and (literal.splat or literal.type.elements <= INLINE_ELEMENTS)

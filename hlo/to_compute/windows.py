"""The windows of pooling and of its gradient: taps as axes of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.index_maps import Index
from hlotune.schedules.ir.compute import Axis
from hlotune.schedules.ir.expr import Affine

DIRECTIONS = ("GE", "GT", "LE", "LT")


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over each dimension of an operand."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    spread: tuple[int, ...]
    lows: tuple[int, ...]
    """Elements that are padded in front of the operand."""
    names: tuple[str, ...]
    """The names of the dimensions."""

    @staticmethod
    def of(op: Op, names: tuple[str, ...]) -> "Windows":
        sizes = numbers(op, "window_dimensions")
        spread = (1,) * len(sizes)
        if op.name == "stablehlo.reduce_window":
            spread = numbers(op, "window_dilations")
        lows = tuple(low for low, _ in cast(tuple[tuple[int, int], ...], op["padding"]))
        return Windows(sizes, numbers(op, "window_strides"), spread, lows, names)

    def tap(self, dimension: int) -> Affine:
        """Which element of its window is read along a dimension."""
        name = f"tap{dimension} {self.names[dimension]}"
        return Affine.axis(name) if self.sizes[dimension] > 1 else Affine()

    @property
    def taps(self) -> list[Axis]:
        """An axis for each dimension of a window that has more than one element."""
        pairs = ((self.tap(d), n) for d, n in enumerate(self.sizes) if n > 1)
        return [Axis(tap.terms[0][0], n) for tap, n in pairs]

    @property
    def elements(self) -> int:
        found = 1
        for n in self.sizes:
            found *= n
        return found

    @property
    def number(self) -> Affine:
        """The place of an element in its window, row by row."""
        found = Affine()
        for d, n in enumerate(self.sizes):
            found = found * n + self.tap(d)
        return found

    def read(self, places: Mapping[str, Affine]) -> Index:
        """The index of an element of a window, from the place of the window along each name."""
        return tuple(
            places[name] * self.strides[d] + self.tap(d) * self.spread[d] + -self.lows[d]
            for d, name in enumerate(self.names)
        )

    def reaching(self, index: Sequence[Affine]) -> Index:
        """Times the strides, the window in which an element is the one that the taps say."""
        return tuple(e - self.tap(d) for d, e in enumerate(index))


def selection(op: Op) -> str | None:
    """How a select_and_scatter compares what it selects, where it adds up and pads nothing."""
    select, scatter = op.regions
    if any(low or high for low, high in cast(tuple[tuple[int, int], ...], op["padding"])):
        return None
    if [o.name for o in select.ops] != ["stablehlo.compare"]:
        return None
    if [o.name for o in scatter.ops] != ["stablehlo.add"] or select.captures or scatter.captures:
        return None
    (compare,), (add,) = select.ops, scatter.ops
    plain = compare.operands == select.arguments and select.results == compare.results
    adds = set(add.operands) == set(scatter.arguments) and scatter.results == add.results
    direction = str(compare["comparison_direction"])
    total = compare["compare_type"] == "TOTALORDER"
    return direction if plain and adds and direction in DIRECTIONS and not total else None


def sliced(graph: Graph, value: int) -> tuple[int, tuple[int, ...]]:
    """The slice that alone reads a value, and where it starts; itself where there is none."""
    whole = value, (0,) * len(graph.types[value].shape)
    users = [op for op in graph.ops if value in op.operands]
    if value in graph.results or len(users) != 1 or users[0].name != "stablehlo.slice":
        return whole
    if set(numbers(users[0], "strides")) - {1}:
        return whole
    return users[0].results[0], numbers(users[0], "start_indices")

"""Accesses that differ in constants only.

Copies of a statement that is written out stand at positions of the same variables, and so do the
many loads of one statement of Winograd's.  What hangs on variables alone is found out once for all
of them: bounds, strides of lanes, the pointer before its constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from hlotune.codegen.llvm.addresses import elements, lane_steps, plus, pointer_to
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Lane, Point
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Store
from hlotune.schedules.ir.expr import Affine, Load

Constants = list[int]
"""The constants of an index by dimension: what tells accesses of one form apart."""


@dataclass(frozen=True, eq=False)
class Form:
    """What accesses to a place have in common."""

    f: Function
    place: Place
    index: tuple[Affine, ...]
    """The index without its constants."""
    divisors: tuple[int, ...]
    steps: list[int]
    """Steps of the index between neighbouring lanes, by dimension."""
    lane: Lane | None

    def where(self, constants: Constants) -> list[Affine]:
        return [Affine(e.terms, c) for e, c in zip(self.index, constants, strict=True)]

    # borders --------------------------------------------------------------------------------------

    def outside(self, constants: Constants) -> list[int] | None:
        """Dimensions along which some lane may be outside; None where all are for certain."""
        result = []
        for d, low, high, end, divisor in self._limits:
            low, high = low + constants[d], high + constants[d]
            if high < 0 or low >= end or (low == high and low % divisor):
                return None
            if low < 0 or high >= end or (divisor > 1 and low < high):
                result.append(d)
        return result

    @cached_property
    def _limits(self) -> list[tuple[int, int, int, int, int]]:
        """For each dimension to check its least and largest index but for constants, and its end.

        Last its divisor.
        """
        result = []
        for d in self.place.checks:
            low, high = self.f.bounds(self.index[d])
            reach = self.steps[d] * (self.lane.active - 1) if self.lane else 0
            divisor = self.divisors[d] if self.divisors else 1
            end = self.place.shape[d] * divisor
            result.append((d, low + min(0, reach), high + max(0, reach), end, divisor))
        return result

    def lanes_vary(self, dimensions: list[int]) -> bool:
        """Whether the lanes of a vector stand at several places along some dimensions."""
        wide = self.lane is not None and self.lane.lanes > 1
        return wide and any(self.steps[d] for d in dimensions)

    # addresses ------------------------------------------------------------------------------------

    @cached_property
    def lanes(self) -> int:
        """Lanes of what is read where nothing is to be checked; 1 where all lanes are one element.

        A dimension beside the place's own takes no memory, and decides nothing then.
        """
        return self.lane.lanes if self.lane and any(self.steps[: self._own]) else 1

    def is_run(self, constants: Constants) -> bool:
        """Whether the lanes are neighbours, or one element."""
        starts = all([(constants[d] - n) % self.lanes == 0 for d, n in self._starts])
        return starts and self._is_run

    @cached_property
    def _own(self) -> int:
        return len(self.steps) - self.place.beside

    @cached_property
    def _is_run(self) -> bool:
        """The same, where those of a block start at a multiple of the lanes."""
        if any(n > 1 for n in self.divisors):
            return False
        across = [d for d in range(self._own) if self.steps[d]] if self.lanes > 1 else []
        inside = all(self._is_in_block(d) for d in across if d in self.place.blocks)
        step = sum(self.steps[d] * self.place.strides[d, 1] for d in across)
        return inside and (step == 1 or not across)

    def _is_in_block(self, d: int) -> bool:
        first = self.index[d] - self.place.origin[d]
        whole = self.place.blocks[d] % self.lanes == 0 and self.f.multiple_of(first, self.lanes)
        return whole and self.steps[d] == 1

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        """Dimensions whose blocks the lanes lie in, with the constants of their origins."""
        across = (d for d in self.place.blocks if self.lanes > 1 and self.steps[d])
        return [(d, self.place.origin[d].constant) for d in across]

    def pointer(self, constants: Constants) -> str:
        """The pointer to the first lane."""
        if self._offset is None:
            return pointer_to(self.f, self.place, self.where(constants))
        total = 0
        for c, (origin, inner, block, outer) in zip(constants, self._scales, strict=True):
            c -= origin
            if block:
                whole, c = divmod(c, block)
                total += whole * outer
            total += c * inner
        pointer, _ = self.f.pointer(self.place.base, self._offset)
        return plus(self.f, pointer, total)

    def hoistable_pointer(self, constants: Constants) -> tuple[str, int]:
        """To the first lane of a place without blocks, and the loop depth at which it is known."""
        offset = elements(self.f, self.place, self.where(constants)) * BYTES[self.place.dtype]
        pointer, depth = self.f.pointer(self.place.base, offset)
        if not offset.constant:
            return pointer, depth
        text = f"getelementptr inbounds i8, ptr {pointer}, i64 {offset.constant}"
        return self.f.hoisted(depth, text), depth

    def is_aligned(self, constants: Constants, to_bytes: int) -> bool:
        """Whether the first lane surely lies at a multiple of some bytes.

        A tensor begins at one where its size is one: its caller promises no more.
        """
        if self._offset is None or self.place.blocks:
            return False
        size = BYTES[self.place.dtype]
        if prod(self.place.shape) * size % to_bytes:
            return False
        strides = [self.place.strides[d, 1] for d in range(self._own)]
        pairs = zip(constants, self.place.origin, strides, strict=False)
        total = self._offset.constant + sum((c - e.constant) * n for c, e, n in pairs) * size
        return self.f.multiple_of(self._offset, to_bytes) and total % to_bytes == 0

    @cached_property
    def _offset(self) -> Affine | None:
        """Bytes, but for what constants add; None where variables say which element of a block."""
        blocks = self.place.blocks.items()
        if all(self.f.multiple_of(self.index[d] - self.place.origin[d], b) for d, b in blocks):
            return elements(self.f, self.place, list(self.index)) * BYTES[self.place.dtype]
        return None

    @cached_property
    def _scales(self) -> list[tuple[int, int, int, int]]:
        """For each dimension its origin, bytes of a step, its block or 0, and bytes of a block."""
        size, result = BYTES[self.place.dtype], []
        for d, origin in enumerate(self.place.origin):
            block = self.place.blocks.get(d, 0)
            outer = self.place.strides[d, block] * size if block else 0
            result.append((origin.constant, self.place.strides[d, 1] * size, block, outer))
        return result


def form_of(f: Function, place: Place, x: Load | Store, point: Point) -> Form:
    key = x.terms, point.lane, point.terms
    form = place.forms.get(key)
    if not isinstance(form, Form):
        variables = {root: Affine(e.terms) for root, e in point.positions.items()}
        index = tuple(Affine(e.terms).substitute(variables) for e in x.index)
        divisors = x.divisors if isinstance(x, Load) else ()
        steps = lane_steps(x.index, point.lane)
        form = place.forms[key] = Form(f, place, index, divisors, steps, point.lane)
    return form


def constants_of(index: tuple[Affine, ...], at: Mapping[str, int]) -> Constants:
    """At positions of these constants."""
    result = []
    for e in index:
        constant = e.constant
        for axis, c in e.terms:
            constant += c * at[axis]
        result.append(constant)
    return result

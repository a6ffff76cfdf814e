"""What a kernel should give: inputs with the oracle's answers, made once for all candidates."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.random import Generator

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.default_precision import leaves_precision
from hlotune.hlo.graph import Graph
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.oracle import Oracle, OracleInTiles, rounding
from hlotune.hlo.oracle.boxes import Box
from hlotune.hlo.oracle.contraction import terms_of
from hlotune.hlo.oracle.evaluation import CONVOLUTION
from hlotune.hlo.oracle.projection import Way
from hlotune.measure.verification.cases import EXACT, Case, Expected
from hlotune.measure.verification.inputs import Array, InputKind, draw
from hlotune.measure.verification.repeated import SHORT_PERIOD, is_large
from hlotune.measure.verification.whole_sums import (
    WholeSums,
    draw_whole,
    share_of,
    ways,
    whole_sums,
)
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.targets.target import F32Operands

MOST_ELEMENTS = 1 << 16
"""Elements compared: all of a smaller result, else corners, borders and random blocks."""

FURTHER_ELEMENTS = 1 << 14
"""The same of each further set, whose random blocks lie elsewhere."""

MOST_RESULTS = 8
"""Up to so many results have that many elements each; more share what these have."""

MOST_PRODUCTS = 1 << 27
"""Products that the oracle adds up for the first set of a result: of long sums fewer elements are
compared."""

FURTHER_PRODUCTS = 1 << 25
"""The same of each further set."""

SHARED_TERMS = 256
"""Sums of so many terms are looked at in the same boxes of all results of one shape, which the
oracle adds up once."""

LONG_TERMS = 1 << 14
"""Sums of so many terms are looked at in few boxes: to go through the operands takes as long for a
small box as for a larger one."""

FEW_BOXES, FEWEST_BOXES = 6, 3
"""A box takes milliseconds however small it is.  So a further set has six, but for that of extreme
values, which reaches all corners and borders as the first sets do.  Of long sums the first sets
have six, where sums do not compare all elements, and all others three."""

WHOLE_RATHER = 4
"""A result up to so many times as large as what a further set compares of it is one box."""

LEAST_ELEMENTS = 1 << 12
"""A result's share of the elements, at least."""

MOST_UNCOMPARED = 0.01
"""A set of which more is lost is drawn again, with smaller values."""

LEAST_COMPARED = 0.1
"""A set of which less can be compared proves nothing.  Masks may leave infinities at any scale."""

MOST_KEPT_BYTES = 1 << 28
"""The most that sums keep from which bounds of tiles are made, besides the cases."""

_SCALES = (1.0, 0.5, 0.25, 0.1, 0.01, 0.001)
_TRIED: dict[InputKind, tuple[float, ...]] = {
    "integers": (4.0, 1.0),
    "few": (1.0, 1 / 16, 16.0, 1 / 256),
    "whole": (1.0,),
    "tf32": (1.0, 1 / 4, 1 / 16),
}


def _memory_bytes(values: Array) -> int:
    """What an array takes; one whose values repeat takes its period."""
    if is_large(values.shape, SHORT_PERIOD):
        return SHORT_PERIOD * values.itemsize
    return values.nbytes


def elements_of_each(results: int, *, terms: int = 0, further: bool) -> int:
    """About how many elements of each result are compared, in a further set of inputs or not.

    Of sums of many `terms` there are fewer, however few that are.
    """
    most = FURTHER_ELEMENTS if further else MOST_ELEMENTS
    if results > MOST_RESULTS:
        most = max(LEAST_ELEMENTS, most * MOST_RESULTS // results)
    products = FURTHER_PRODUCTS if further else MOST_PRODUCTS
    return max(1, min(most, products // max(1, terms)))


Tried = tuple[Case, Oracle]


class References:
    """The cases of one kernel.  Each is made on first use and kept."""

    def __init__(self, kernel: Kernel, f32_operands: F32Operands = "f32") -> None:
        """Bounds allow for f32 operands of products that are rounded to `f32_operands`, where the
        kernel leaves that to the device.
        """
        self.kernel, self.f32_operands = kernel, f32_operands
        self._cases: dict[tuple[InputKind, int, int], Case] = {}
        self._oracles: dict[tuple[InputKind, int], Oracle] = {}
        """Oracles of cases without tiles, from whose sums those with tiles are made."""
        self._begun_ones: dict[tuple[InputKind, int, float], tuple[Oracle, Generator]] = {}
        """What looked as if it suits, and is evaluated next."""

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.kernel)

    @property
    def bytes(self) -> int:
        """The bytes of all cases; inputs that several have count once."""
        cases = self._cases.values()
        inputs = {id(v): _memory_bytes(v) for case in cases for v in case.values}
        return sum(inputs.values()) + sum(case.answers_bytes for case in cases)

    def case(self, kind: InputKind, seed: int = 0, outputs: int = 0) -> Case:
        """One input set; with `outputs` for Winograd's F(outputs, 3).

        Raises UnsupportedKernel where the oracle does not know an operation of the kernel, or has
        next to nothing to compare.
        """
        if (kind, seed, outputs) not in self._cases:
            with rounding(self.f32_operands):
                self._cases[kind, seed, outputs] = self._drawn(kind, seed, outputs)
        return self._cases[kind, seed, outputs]

    def answered(self, kind: InputKind, seed: int, outputs: int = 0) -> Case:
        """One input set; with `outputs` for Winograd's F(outputs, 3) where its sums are not exact.

        Raises what `case` does.
        """
        case = self.case(kind, seed)
        return case if not outputs or case.is_exact else self.case(kind, seed, outputs)

    def knows(self, kind: InputKind, seed: int, outputs: int = 0) -> bool:
        """Whether `answered` need not ask the oracle."""
        case = self._cases.get((kind, seed, 0))
        if case is None or not outputs or case.is_exact:
            return case is not None
        return (kind, seed, outputs) in self._cases

    def _drawn(self, kind: InputKind, seed: int, outputs: int) -> Case:
        """Draws other sizes until results can be compared and suit; else the best try stands."""
        tries, passed_over = list[Tried](), list[float]()
        *larger, last = self._scales(kind, seed, outputs)
        for scale in (*larger, last):
            may_suit = scale == last or outputs or self._may_suit(kind, seed, scale)
            if not may_suit:
                passed_over.append(scale)
                continue
            case, oracle = self._tried(kind, seed, scale, outputs)
            if case.uncompared <= MOST_UNCOMPARED and case.suits:
                return self._kept(case, seed, oracle)
            tries.append((case, oracle))
        if min(case.uncompared for case, _ in tries) > MOST_UNCOMPARED:
            tries[:0] = [self._tried(kind, seed, scale, outputs) for scale in passed_over]
        if kind == "few":
            tries.sort(key=lambda t: -t[0].alike)
        # Of equals the smallest values.
        case, oracle = min(reversed(tries), key=lambda t: t[0].uncompared)
        if case.uncompared > 1 - LEAST_COMPARED:
            raise UnsupportedKernel(
                f"expected results that the oracle can compare, got {case.uncompared:.0%} of them "
                f"infinite, no numbers or undecided with {kind} inputs of every size; "
                "leave this kernel to XLA"
            )
        return self._kept(case, seed, oracle)

    def _may_suit(self, kind: InputKind, seed: int, scale: float) -> bool:
        """Whether integers of a size may be exact, by one element of each result: where an
        operation rounds, as a division does, it mostly rounds that one too, and to evaluate all of
        the case would take as long as the one that stands.
        """
        if kind not in EXACT:
            return True
        oracle, rng = self._begun(kind, seed, scale)
        shapes = (t.shape for t in self.graph.result_types)
        corners = enumerate(tuple((0, min(n, 1)) for n in shape) for shape in shapes)
        found = all(oracle.region(result, box).exact for result, box in corners)
        if found:
            self._begun_ones[kind, seed, scale] = oracle, rng
        return found

    def _kept(self, case: Case, seed: int, oracle: Oracle) -> Case:
        """Keeps the oracle where tiles may be asked for, as long as there is room."""
        has_tiles = any(op.name == CONVOLUTION for op in self.graph.ops)
        if has_tiles and not isinstance(oracle, OracleInTiles):
            if sum(o.kept_bytes for o in self._oracles.values()) > MOST_KEPT_BYTES:
                self.forget()
            self._oracles[case.kind, seed] = oracle
        return case

    def _scales(self, kind: InputKind, seed: int, outputs: int) -> tuple[float, ...]:
        """Sizes to try: what did not suit without tiles does not with their wider bounds."""
        scales = _TRIED.get(kind, _SCALES)
        return scales[scales.index(self.case(kind, seed).scale) :] if outputs else scales

    def _tried(self, kind: InputKind, seed: int, scale: float, outputs: int) -> Tried:
        return (
            self._in_tiles(kind, seed, scale, outputs)
            if outputs
            else self._evaluated(kind, seed, scale)
        )

    def _in_tiles(self, kind: InputKind, seed: int, scale: float, outputs: int) -> Tried:
        plain = self.case(kind, seed)
        sums = self._oracles.get((kind, seed)) or Oracle(self.graph, plain.values)
        if plain.scale != scale:
            plain, sums = self._evaluated(kind, seed, scale)
        oracle, expected = OracleInTiles(sums, outputs), []
        for e in plain.expected:
            box = tuple((s.start, s.stop) for s in e.box)
            expected.append(replace(e, reference=oracle.region(e.result, box)))
        return replace(plain, expected=tuple(expected)), oracle

    def _begun(self, kind: InputKind, seed: int, scale: float) -> tuple[Oracle, Generator]:
        """The oracle with values that were drawn, and the generator behind them."""
        if (kind, seed, scale) in self._begun_ones:
            return self._begun_ones.pop((kind, seed, scale))
        rng = np.random.default_rng([seed, len(kind), round(1000 * scale)])
        if kind == "whole":
            values = draw_whole(self.graph, self._ways.values(), rng, SHORT_PERIOD)
        else:
            values = draw(self.graph, kind, rng, scale, SHORT_PERIOD)
        return Oracle(self.graph, values), rng

    def _evaluated(self, kind: InputKind, seed: int, scale: float) -> Tried:
        (oracle, rng), expected = self._begun(kind, seed, scale), list[Expected]()
        values = tuple(oracle.arguments.values())
        sums = self._sums(oracle, rng) if kind == "integers" and not seed else ()
        known = {s.result for s in (*sums, *self._known_sums)}
        further = bool(seed) or kind == "whole"
        everywhere = not further or kind == "special"
        boxes = self._boxes(oracle, rng, known, further=further, everywhere=everywhere)
        for result, box in boxes:
            place = tuple(slice(low, high) for low, high in box)
            shape = self.graph.result_types[result].shape
            expected.append(Expected(result, place, oracle.region(result, box), shape))
        case = Case(kind, values, tuple(expected), scale, sums)
        if kind == "whole":
            case = replace(case, sums=self._more_sums(case, oracle, rng))
        return case, oracle

    @property
    def _known_sums(self) -> list[WholeSums]:
        """The weighed sums of the cases so far."""
        return [s for case in self._cases.values() for s in case.sums]

    @cached_property
    def _ways(self) -> dict[int, Way]:
        """How results of which some boxes are evaluated are made of sums."""
        found = ways(self.graph)
        most = elements_of_each(len(self.graph.results), terms=self._terms, further=False)
        return {r: w for r, w in found.items() if self.graph.result_types[r].elements > most}

    def _sums(self, oracle: Oracle, rng: Generator) -> tuple[WholeSums, ...]:
        """Those of integers, of the results of which some boxes are evaluated."""
        found = (whole_sums(oracle, result, way, rng) for result, way in self._ways.items())
        return tuple(s for s in found if s is not None)

    def _more_sums(self, case: Case, oracle: Oracle, rng: Generator) -> tuple[WholeSums, ...]:
        """Those of results that the integers leave open; sums of sparse operands are only likely to
        be exact, so boxes have to be.
        """
        rounded = {e.result for e in case.expected if not e.reference.exact}
        known = {s.result for s in self.case("integers").sums}
        found = list[WholeSums | None]()
        for result, way in self._ways.items():
            sparse = share_of(self.graph, way) < 1
            if result not in known and not (sparse and result in rounded):
                found.append(whole_sums(oracle, result, way, rng, sparse=sparse))
        return tuple(s for s in found if s is not None)

    @cached_property
    def rounds_operands(self) -> bool:
        """Whether f32 operands of some product may be rounded to tf32, and no further."""
        left = (op for op in self.graph.ops if leaves_precision(op))
        narrows = any(self.graph.types[v].dtype == "f32" for op in left for v in op.operands)
        return narrows and self.f32_operands == "tf32"

    @cached_property
    def compares_more_as_whole(self) -> bool:
        """Whether a set of the kind `whole` compares all of a result that integers do not."""
        if len(self.case("integers").sums) == len(self._ways):
            return False
        return self._is_compared("whole") and bool(self.case("whole").sums)

    @cached_property
    def compares_wide_operands(self) -> bool:
        """Whether operands may be rounded to tf32, and results of a set of the kind `tf32` can be
        compared: an exponential of its sums may be infinite everywhere.
        """
        return self.rounds_operands and self._is_compared("tf32")

    def _is_compared(self, kind: InputKind) -> bool:
        try:
            self.case(kind)
        except UnsupportedKernel:
            return False
        return True

    @cached_property
    def _terms(self) -> int:
        """The number of terms of the longest sum of products in the kernel."""
        return max((terms_of(self.graph, op) for op in self.graph.ops), default=0)

    def _boxes(
        self,
        oracle: Oracle,
        rng: Generator,
        known: Collection[int],
        *,
        further: bool,
        everywhere: bool,
    ) -> Iterator[tuple[int, Box]]:
        """The boxes of all results that are compared, with the numbers of the results; `known` are
        those of which all elements are compared otherwise.  `everywhere` asks for all corners and
        borders.
        """
        types = self.graph.result_types
        most = elements_of_each(len(types), terms=self._terms, further=further)
        shared = dict[tuple[int, ...], list[Box]]()
        open_shapes = {t.shape for result, t in enumerate(types) if result not in known}
        for result, tensor in enumerate(types):
            is_whole = further and tensor.elements <= WHOLE_RATHER * most
            each = tensor.elements if is_whole else most
            is_first = tensor.shape in open_shapes and not further
            boxes = self._most_boxes(is_first=is_first, everywhere=everywhere)
            found = shared.get(tensor.shape) or oracle.regions_to_check(result, rng, each, boxes)
            if self._terms >= SHARED_TERMS:
                shared[tensor.shape] = found
            yield from ((result, box) for box in found)

    def _most_boxes(self, *, is_first: bool, everywhere: bool) -> int | None:
        """None for as many as reach all corners and borders."""
        if self._terms >= LONG_TERMS:
            return FEW_BOXES if is_first else FEWEST_BOXES
        return None if everywhere else FEW_BOXES

    def forget(self) -> None:
        """The oracles; cases stay."""
        self._oracles.clear()
        self._begun_ones.clear()

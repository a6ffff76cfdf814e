"""Evaluates graphs: whole and in order, or backwards from a box of a result."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph, Literal, Op
from hlotune.hlo.oracle import elementwise
from hlotune.hlo.oracle.bounded import UNKNOWN, Bounded, received
from hlotune.hlo.oracle.boxes import Box, elements, slices, whole
from hlotune.hlo.oracle.comparison import Reference, reference
from hlotune.hlo.oracle.contraction import convolution, dot_general, in_tiles
from hlotune.hlo.oracle.convolution import Convolution
from hlotune.hlo.oracle.cumulative import accumulated
from hlotune.hlo.oracle.indexed import INDEXED
from hlotune.hlo.oracle.movement import MOVEMENT
from hlotune.hlo.oracle.pace import Pace
from hlotune.hlo.oracle.regions import regions_to_check
from hlotune.hlo.oracle.request import OutOfTime, Request, Rule, unsupported
from hlotune.hlo.oracle.scattered_windows import select_and_scatter
from hlotune.hlo.oracle.tiles import Worth, worth_of
from hlotune.hlo.oracle.window import captured, reduce, reduce_window
from hlotune.hlo.to_compute.cumulative import cumulative

CONVOLUTION = "stablehlo.convolution"
SMALL_ELEMENTS = 4096
"""Intermediate values up to this size are evaluated whole, once."""
MEMORY_BYTES = 256 << 20
"""Intermediate boxes that are kept for a second use."""
MOST_WEIGHTS = 1 << 22
"""Up to so many weights of a convolution all boxes share what bounds of tiles need: 64 MiB."""
LONG_GRAPH = 200
"""Above as many operations a graph is evaluated whole: walking back would recurse too deep."""


def mapped(request: Request) -> tuple[Bounded, ...]:
    region = request.op.regions[0]
    operands = [request.operand(i, request.box) for i in range(len(request.op.operands))]
    results = elementwise.fold(region, operands, captured(request, region))
    return tuple(r.move(lambda x: np.broadcast_to(x, request.shape)) for r in results)


def while_(request: Request) -> tuple[Bounded, ...]:
    condition, body = request.op.regions
    of_condition, of_body = captured(request, condition), captured(request, body)
    state = request.operands()
    known = True
    while True:
        (more,) = run(condition, state, of_condition, request.deadline_s)
        known = known and more.is_exact
        if not more.value:
            return state if known else unknown(state)
        state = run(body, state, of_body, request.deadline_s)


def branch(request: Request) -> tuple[Bounded, ...]:
    """`if` and `case`: an index out of range means the last branch."""
    selector, regions = request.operand(0), request.op.regions
    index = int(selector.value)
    if request.op.name == "stablehlo.if":
        index = 1 - index
    chosen = regions[index] if 0 <= index < len(regions) else regions[-1]
    results = run(chosen, (), captured(request, chosen), request.deadline_s)
    return results if selector.is_exact else unknown(results)


def unknown(values: Sequence[Bounded]) -> tuple[Bounded, ...]:
    return tuple(Bounded(x.value, np.full(x.shape, UNKNOWN), x.dtype) for x in values)


def unchanged(request: Request) -> tuple[Bounded, ...]:
    return request.operands()


def windows(request: Request) -> tuple[Bounded, ...]:
    """A reduce_window; those that are cumulative are not taken apart into windows."""
    found = cumulative(request.graph, request.op)
    return accumulated(request, found) if found else reduce_window(request)


BY_BOX: dict[str, Rule] = {
    **MOVEMENT,
    "stablehlo.dot_general": dot_general,
    CONVOLUTION: convolution,
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": windows,
    "stablehlo.select_and_scatter": select_and_scatter,
    "stablehlo.map": mapped,
}
WHOLE: dict[str, Rule] = {
    **INDEXED,
    "stablehlo.while": while_,
    "stablehlo.if": branch,
    "stablehlo.case": branch,
    "stablehlo.optimization_barrier": unchanged,
}


def rule(op: Op) -> Rule:
    """Raises UnsupportedKernel for an operation that the oracle does not know."""
    found = BY_BOX.get(op.name) or WHOLE.get(op.name)
    if found is None and elementwise.is_elementwise(op):
        found = elementwise.rule
    if found is None:
        raise unsupported("an operation that the oracle knows", op.name)
    return found


Given = Bounded | NDArray[Any]
"""An argument; an array is as a program was given it, and only the boxes that are read are widened.
"""


def run(
    graph: Graph,
    arguments: Sequence[Given],
    outer: Mapping[int, Given],
    deadline_s: float = inf,
    look: Callable[[int], None] = lambda position: None,
) -> tuple[Bounded, ...]:
    """All results of a graph, in order of its operations; values go after their last use.

    Raises OutOfTime at the first operation after the deadline, of `time.monotonic()`, and where
    `look` does, which is called ahead of each operation.
    """
    held: dict[int, Given] = dict(zip(graph.arguments, arguments, strict=True))
    held |= {here: outer[there] for here, there in graph.captures}
    last = _last_uses(graph)

    def value(number: int, box: Box) -> Bounded:
        found = held[number][slices(box)]
        return found if isinstance(found, Bounded) else received(found, graph.types[number].dtype)

    for position, op in enumerate(graph.ops):
        if time.monotonic() > deadline_s:
            raise OutOfTime
        look(position)
        if (large := _large_constant(op)) is not None:
            held[op.results[0]] = large
            continue
        box = whole(graph.types[op.results[0]].shape) if op.results else ()
        results = rule(op)(Request(graph, op, box, value, deadline_s=deadline_s))
        held |= dict(zip(op.results, results, strict=True))
        for v in last.get(position, ()):
            del held[v]
    return tuple(value(v, whole(graph.types[v].shape)) for v in graph.results)


def _large_constant(op: Op) -> NDArray[Any] | None:
    """The values of a constant that is worth widening in parts."""
    literal = op["value"] if op.name == "stablehlo.constant" else None
    if not isinstance(literal, Literal) or literal.splat:
        return None
    return literal.array() if literal.type.elements > SMALL_ELEMENTS else None


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """Values that no operation after a position, and no result, needs."""
    last: dict[int, int] = {}
    for position, op in enumerate(graph.ops):
        captures = (outside for region in op.regions for _, outside in region.captures)
        for v in (*op.results, *op.operands, *captures):
            last[v] = position
    dead: dict[int, list[int]] = {}
    for v, position in last.items():
        if v not in graph.results:
            dead.setdefault(position, []).append(v)
    return dead


def evaluate(
    graph: Graph, arguments: Sequence[NDArray[Any]], *, limit_s: float = inf
) -> tuple[Reference, ...]:
    """All results of a function, whole.

    Raises:
        UnsupportedKernel: the graph holds an operation that the oracle does not know.
        OutOfTime: it would take longer than the limit, give or take one operation, or a piece of
            a long sum of products; long before the limit where it would take far longer.
    """
    deadline_s = time.monotonic() + limit_s
    with np.errstate(all="ignore"):
        given = [np.asarray(a) for a in arguments]
        results = run(graph, given, {}, deadline_s, Pace(graph, limit_s).look)
        return tuple(reference(r) for r in results)


class Oracle:
    """Evaluates boxes of results, asking every operation only for what the box needs."""

    def __init__(self, graph: Graph, arguments: Sequence[NDArray[Any]]) -> None:
        self.graph = graph
        self.arguments = dict(zip(graph.arguments, arguments, strict=True))
        self.producers = {v: op for op in graph.ops for v in op.results}
        self.kept: OrderedDict[tuple[int, Box], tuple[Bounded, ...]] = OrderedDict()
        self.kept_small: dict[int, tuple[Bounded, ...]] = {}
        """Results of at most `SMALL_ELEMENTS`, whole.  Reductions of large tensors are among them,
        and boxes of these tensors must not push them out."""
        self.kept_bytes = 0
        self.whole: tuple[Reference, ...] | None = None

    def region(self, result: int, box: Box) -> Reference:
        """The box of a result, by the result's position.

        Raises:
            UnsupportedKernel: the graph holds an operation that the oracle does not know.
        """
        if self._is_long(self.graph.results[result]):
            return self._cut(result, box)
        with np.errstate(all="ignore"):
            return reference(self.value(self.graph.results[result], box))

    def _is_long(self, value: int) -> bool:
        """Whether more than `LONG_GRAPH` operations are behind a value."""
        if len(self.graph.ops) <= LONG_GRAPH:
            return False
        behind, waiting = set[int](), [value]
        while waiting and len(behind) <= LONG_GRAPH:
            op = self.producers.get(waiting.pop())
            if op is not None and op.results[0] not in behind:
                behind.add(op.results[0])
                waiting += op.operands
                waiting += [outside for region in op.regions for _, outside in region.captures]
        return len(behind) > LONG_GRAPH

    def regions_to_check(
        self, result: int, rng: Generator, limit_elements: int, most_boxes: int | None = None
    ) -> list[Box]:
        """The whole of a result when it is small, else its corners, borders and random blocks."""
        shape = self.graph.result_types[result].shape
        return regions_to_check(shape, rng, limit_elements, most_boxes)

    def _cut(self, result: int, box: Box) -> Reference:
        if self.whole is None:
            self.whole = evaluate(self.graph, list(self.arguments.values()))
        full, cut = self.whole[result], slices(box)
        return Reference(
            full.value[cut], None if full.bound is None else full.bound[cut], full.exact
        )

    def value(self, value: int, box: Box) -> Bounded:
        shape, dtype = self.graph.types[value].shape, self.graph.types[value].dtype
        if value in self.arguments:
            return received(np.asarray(self.arguments[value])[slices(box)], dtype)
        op = self.producers[value]
        full = whole(shape)
        wide = full if op.name in WHOLE or elements(full) <= SMALL_ELEMENTS else box
        found = self.results(op, wide)[op.results.index(value)]
        return found if wide == box else found[slices(box, wide)]

    def results(self, op: Op, box: Box) -> tuple[Bounded, ...]:
        """What an operation gives, kept for a second use."""
        if elements(box) <= SMALL_ELEMENTS and box == whole(self.graph.types[op.results[0]].shape):
            if op.results[0] not in self.kept_small:
                self.kept_small[op.results[0]] = self._applied(op, box)
            return self.kept_small[op.results[0]]
        asked = () if op.name in WHOLE else box
        key = (op.results[0], asked)
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        results = self._applied(op, box)
        self.kept[key] = results
        self.kept_bytes += _bytes(results)
        while self.kept_bytes > MEMORY_BYTES:
            self.kept_bytes -= _bytes(self.kept.popitem(last=False)[1])
        return results

    def _applied(self, op: Op, box: Box) -> tuple[Bounded, ...]:
        return rule(op)(Request(self.graph, op, box, self.value))


class OracleInTiles(Oracle):
    """Bounds of kernels that compute convolutions by Winograd's F(outputs, 3), see `tiles.py`.

    What no convolution is behind, the sums themselves, and all of a long graph, it takes from the
    plain oracle.
    """

    def __init__(self, plain: Oracle, outputs: int) -> None:
        super().__init__(plain.graph, list(plain.arguments.values()))
        self.plain, self.outputs = plain, outputs
        self.wider = _behind_convolutions(plain.graph)
        self.worth: dict[int, Worth | None] = {}

    def _cut(self, result: int, box: Box) -> Reference:
        return self.plain.region(result, box)

    def value(self, value: int, box: Box) -> Bounded:
        return super().value(value, box) if value in self.wider else self.plain.value(value, box)

    def _applied(self, op: Op, box: Box) -> tuple[Bounded, ...]:
        if op.name != CONVOLUTION:
            return super()._applied(op, box)
        same = self.wider.isdisjoint(op.operands)
        (sums,) = self.plain.results(op, box) if same else super()._applied(op, box)
        request = Request(self.graph, op, box, self.value)
        worth = self._worth(request)
        return (sums if worth is None else in_tiles(request, sums, self.outputs, worth),)

    def _worth(self, request: Request) -> Worth | None:
        """What roundings behind the weights are worth: of all features once, as boxes share them;
        of large weights those of the box.
        """
        if request.type(1).elements > MOST_WEIGHTS:
            return worth_of(Convolution(request), self.outputs)
        (result,) = request.op.results
        if result not in self.worth:
            box, feature = list(request.box), request.number("output_feature_dimension")
            box[feature] = 0, request.result.shape[feature]
            whole_of = Convolution(request.within(tuple(box)))
            self.worth[result] = worth_of(whole_of, self.outputs)
        return self.worth[result]


def _behind_convolutions(graph: Graph) -> set[int]:
    """The values that a convolution gives or has part in."""
    found = set[int]()
    for op in graph.ops:
        captures = {outside for region in op.regions for _, outside in region.captures}
        if op.name == CONVOLUTION or not found.isdisjoint({*op.operands, *captures}):
            found |= set(op.results)
    return found


def _bytes(values: Sequence[Bounded]) -> int:
    return sum(
        int(x.value.nbytes) + (x.bound.nbytes if any(x.bound.strides) else 0) for x in values
    )

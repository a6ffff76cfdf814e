"""The canonical text of a function: what a kernel's identity is made of.

Printed by us, never by MLIR, so that its spelling changes only when we change `CANONICAL_VERSION`.
Operations stand depth-first from the results, values are numbered in that order and arguments by
first use; attributes have their defaults filled in and are sorted.  There are no names, locations
or layouts in it, and it parses as StableHLO.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from hlotune.hlo.graph import Graph, Literal, Op, numpy_dtype
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir import attributes
from hlotune.hlo.mlir import module as mlir

ENTRY = "kernel"
INLINE_ELEMENTS = 64
"""Constants of more elements than this are arguments of kernels, not part of their text."""


def canonical(graph: Graph) -> str:
    """The text of a module with one function `@kernel`.

    Its arguments stand in the order of `argument_order(graph)`.  Operations that no result needs
    are left out.
    """
    return _Printer().function(graph)


def fingerprint(graph: Graph) -> str:
    """Hash of the canonical text, large constants standing as their own hashes: 32 hex digits."""
    text = _Printer(_digest).function(graph)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def without_values(graph: Graph) -> str:
    """The canonical text with zeros in the place of large constants, of which a program may have
    gigabytes.
    """
    return _Printer(_zeros).function(graph)


@lru_cache(maxsize=512)
def graph_of(kernel: Kernel) -> Graph:
    """The function of a kernel as plain values."""
    return mlir.graph(mlir.parse(kernel.text), ENTRY)


def argument_order(graph: Graph) -> tuple[int, ...]:
    """The arguments by first use, depth-first from the results; unused ones come last."""
    used = [v for v in _traverse(graph)[1] if v in set(graph.arguments)]
    return tuple(used) + tuple(a for a in graph.arguments if a not in used)


def places(graph: Graph) -> dict[int, int]:
    """Place of each operation in the canonical text, by index; what no result needs comes last."""
    order = {op.results: n for n, op in enumerate(_traverse(graph)[0])}
    return {i: order.get(op.results, len(order) + i) for i, op in enumerate(graph.ops)}


def _digest(literal: Literal) -> str:
    if _is_short(literal):
        return attributes.constant(literal)
    return f"{hashlib.sha256(literal.data).hexdigest()} : {literal.type}"


def _zeros(literal: Literal) -> str:
    if _is_short(literal):
        return attributes.constant(literal)
    zero = bytes(numpy_dtype(literal.type.dtype).itemsize)
    return attributes.constant(Literal(literal.type, zero, splat=True))


def _is_short(literal: Literal) -> bool:
    return literal.splat or literal.type.elements <= INLINE_ELEMENTS


def _traverse(graph: Graph) -> tuple[list[Op], list[int]]:
    """Operations depth-first from the results; arguments and captures by first use."""
    producer = {r: op for op in graph.ops for r in op.results}
    ops: list[Op] = []
    leaves: list[int] = []
    seen: set[int] = set()
    stack: list[Iterator[int]] = [iter(graph.results)]
    pending: list[Op] = []
    while stack:
        value = next(stack[-1], None)
        if value is None:
            stack.pop()
            if pending:
                ops.append(pending.pop())
        elif value not in seen:
            op = producer.get(value)
            seen.update(op.results if op else (value,))
            if op is None:
                leaves.append(value)
            else:
                pending.append(op)
                stack.append(_needs(op))
    return ops, leaves


def _needs(op: Op) -> Iterator[int]:
    """What an operation reads: operands, then what its regions capture in canonical order."""
    yield from op.operands
    for region in op.regions:
        captured = dict(region.captures)
        yield from (captured[v] for v in _traverse(region)[1] if v in captured)


@dataclass(slots=True)
class _Printer:
    """Writes one function; counts over all regions, so that no name stands for two values."""

    constant: Callable[[Literal], str] = attributes.constant
    count: int = 0
    arguments: int = field(default=0)

    def function(self, graph: Graph) -> str:
        order = argument_order(graph)
        names = {a: f"%arg{i}" for i, a in enumerate(order)}
        self.arguments = len(order)
        signature = ", ".join(
            f"{names[a]}: {graph.types[a]}" + f" {{{mlir.CONSTANT_MARK}}}" * (a in graph.constants)
            for a in order
        )
        results = ", ".join(map(str, graph.result_types))
        body = self.body(graph, names, "  ")
        returned = ", ".join(names[r] for r in graph.results)
        last = f"  return {returned} : {results}" if graph.results else "  return"
        head = f"func.func @{ENTRY}({signature}) -> ({results}) {{"
        return "\n".join([head, *body, last, "}", ""])

    def body(self, graph: Graph, names: dict[int, str], indent: str) -> list[str]:
        lines = []
        for op in _traverse(graph)[0]:
            lines += self.operation(op, graph, names, indent)
        return lines

    def operation(self, op: Op, graph: Graph, names: dict[int, str], indent: str) -> list[str]:
        regions = [self.region(region, names, indent) for region in op.regions]
        number = f"%{self.count}"
        self.count += 1
        several = len(op.results) > 1
        for i, result in enumerate(op.results):
            names[result] = f"{number}#{i}" if several else number
        left = f"{number}:{len(op.results)} = " if several else f"{number} = " if op.results else ""
        operands = ", ".join(names[v] for v in op.operands)
        inherent, discardable = attributes.spell(op, self.constant)
        takes = ", ".join(str(graph.types[v]) for v in op.operands)
        gives = ", ".join(str(graph.types[v]) for v in op.results)
        head = f'{indent}{left}"{op.name}"({operands}){f" <{{{inherent}}}>" if inherent else ""}'
        tail = f"{f' {{{discardable}}}' if discardable else ''} : ({takes}) -> ({gives})"
        if not regions:
            return [head + tail]
        lines = [f"{head} ({{"]
        for i, region in enumerate(regions):
            lines += [f"{indent}}}, {{"] * (i > 0) + region
        return [*lines, f"{indent}}}){tail}"]

    def region(self, graph: Graph, outer: dict[int, str], indent: str) -> list[str]:
        names = {here: outer[there] for here, there in graph.captures if there in outer}
        inside = indent + "  "
        for argument in graph.arguments:
            names[argument] = f"%arg{self.arguments}"
            self.arguments += 1
        signature = ", ".join(f"{names[a]}: {graph.types[a]}" for a in graph.arguments)
        lines = [f"{indent}^bb0({signature}):"] if graph.arguments else []
        lines += self.body(graph, names, inside)
        returned = ", ".join(names[r] for r in graph.results)
        types = ", ".join(map(str, graph.result_types))
        return [*lines, f'{inside}"stablehlo.return"({returned}) : ({types}) -> ()']

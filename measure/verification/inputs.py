"""Inputs for the arguments of a kernel, suited to what the kernel does with them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import log2, sqrt
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph, Op, TensorType, numpy_dtype
from hlotune.hlo.oracle.contraction import terms_of
from hlotune.measure.verification.repeated import PERIOD, is_large, repeated
from hlotune.schedules.dtypes import BYTES, has_kernels, is_float, is_unsigned
from hlotune.schedules.ir.operations import OPERATIONS

Array = NDArray[np.generic]
InputKind = Literal["integers", "normal", "special", "few", "rising", "falling", "whole", "tf32"]
"""`few` has signs in place of numbers, and most of an image's elements are zeros.  Numbers that are
`rising` lie below zero, and the last one of each row, column or whole array is the largest; those
that are `falling` lie above zero, and the last one is the least.  `whole` has integers of which all
elements of a result are compared (`whole_sums.py`).  `tf32` has odd integers of nine and
eleven bits, which tf32 holds and bf16 does not, so few that their sums of products are exact."""
Ordered = Literal["rising", "falling"]
_LARGEST = {"maximum": "", "compare": "GT GE"}
_LEAST = {"minimum": "", "compare": "LT LE"}

_POSITIVE_OPERAND = {
    name: row.positive
    for row in OPERATIONS.values()
    if row.positive is not None
    for name in row.full_names
}
"""Operations with an operand that had better be above zero, and which it is."""

_MOVES = {
    "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert",
    "stablehlo.slice", "stablehlo.concatenate", "stablehlo.reverse",
}  # fmt: skip
"""Operations that give the values of their operands."""

_KEEPS_SIGN = {
    *_MOVES,
    "stablehlo.reduce",
    *(name for row in OPERATIONS.values() if row.keeps_positive for name in row.full_names),
}
"""Operations that give positive values for positive operands."""

_CONTRACTIONS = {"stablehlo.convolution", "stablehlo.dot_general"}
_PRODUCTS = {"stablehlo.multiply", "stablehlo.divide"}
_NOT_WHOLE = {"stablehlo.broadcast_in_dim", "stablehlo.constant"}
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1e4, -1e4, 1e-6, -1e-6)
_SUBNORMAL_SHARE = 0.05
MOST_SUBNORMAL = 64
"""Subnormal numbers of one argument: some processors take a hundred times as long for each."""
_TF32_BITS = 11, 9
"""Significant bits of the first, third and so on floating arguments, and of the others; bf16 holds
eight."""
_TF32_TERMS = 4
"""Products of such numbers that one sum has, on average: 16 of them are exact in f32."""
_FEW = 1 / 16
"""Share of an image's elements that are not zero in inputs of the kind `few`."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What values an argument may take: above zero, and below a limit where it is an index."""

    positive: bool = False
    below: int | None = None


def domains(graph: Graph) -> tuple[Domain, ...]:
    """The domain of each argument, found by following operands back to it."""
    producers = {r: op for op in graph.ops for r in op.results}
    found = {a: Domain() for a in graph.arguments}
    for op in graph.ops:
        for value in _positive_operands(op):
            for source in _sources(value, producers, _KEEPS_SIGN):
                if source in found:
                    found[source] = replace(found[source], positive=True)
        for value, below in _limits(op, graph):
            for source in _sources(value, producers, _MOVES):
                if source in found:
                    known = found[source].below
                    least = below if known is None else min(known, below)
                    found[source] = replace(found[source], below=least)
    return tuple(found[a] for a in graph.arguments)


def _positive_operands(op: Op) -> Iterable[int]:
    position = _POSITIVE_OPERAND.get(op.name)
    return () if position is None else (op.operands[position],)


def _limits(op: Op, graph: Graph) -> Iterable[tuple[int, int]]:
    """(value, limit) for the operands of an operation that are indices or distances."""
    types = [graph.types[v] for v in op.operands]
    if op.name.startswith("stablehlo.shift_"):
        yield op.operands[1], 8 * BYTES.get(types[1].dtype, 1)
    elif op.name == "stablehlo.gather":
        sizes = cast(tuple[int, ...], op["slice_sizes"])
        mapped = cast(tuple[int, ...], op["start_index_map"])
        yield op.operands[1], min((types[0].shape[d] - sizes[d] + 1 for d in mapped), default=1)
    elif op.name == "stablehlo.scatter":
        mapped = cast(tuple[int, ...], op["scatter_dims_to_operand_dims"])
        indices = op.operands[len(op.operands) // 2]
        yield indices, min((types[0].shape[d] for d in mapped), default=1)
    elif op.name in ("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"):
        is_slice = op.name == "stablehlo.dynamic_slice"
        sizes = cast(tuple[int, ...], op["slice_sizes"]) if is_slice else types[1].shape
        for value, extent, size in zip(
            op.operands[1 if is_slice else 2 :], types[0].shape, sizes, strict=True
        ):
            yield value, extent - size + 1


def _sources(value: int, producers: dict[int, Op], through: set[str]) -> set[int]:
    """The values from which `value` is made by operations of those names alone."""

    def behind(current: int) -> Sequence[int]:
        op = producers.get(current)
        squares = op is not None and op.name == "stablehlo.multiply" and len(set(op.operands)) == 1
        return op.operands if op is not None and op.name in through and not squares else ()

    return _reached(value, behind)


def _reached(value: int, behind: Callable[[int], Sequence[int]]) -> set[int]:
    """A value, those behind it, and those behind these."""
    seen, waiting = set[int](), [value]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(behind(current))
    return seen


def draw(
    graph: Graph,
    kind: InputKind,
    rng: np.random.Generator,
    scale: float = 1.0,
    period: int = PERIOD,
) -> tuple[Array, ...]:
    """One array an argument.  `scale` is the size of typical values: less tames overflow.

    Of large arrays so many elements are drawn, and repeated.
    """
    if kind == "few":
        return _few(graph, rng, scale)
    if kind == "tf32":
        return _wide(graph, rng, scale, period)
    if kind == "rising" or kind == "falling":
        facts = zip(graph.argument_types, domains(graph), strict=True)
        return tuple(_in_order(t, domain, kind, rng, scale) for t, domain in facts)
    pairs = zip(graph.argument_types, domains(graph), strict=True)
    return tuple(_argument(tensor, domain, kind, rng, scale, period) for tensor, domain in pairs)


def ordered_kinds(graph: Graph) -> tuple[Ordered, ...]:
    """Orders of inputs in which a kernel's search for largest and least elements shows its faults.

    Of random numbers one that is lost is seldom the largest, and a search that begins at zero finds
    what it should.
    """
    inner = [op for o in graph.ops for region in o.regions for op in region.ops]

    def some(names: Mapping[str, str]) -> bool:
        found = [op for op in inner if op.name.partition(".")[2] in names]
        return any(
            op.name != "stablehlo.compare" or str(op["comparison_direction"]) in names["compare"]
            for op in found
        )

    rising: tuple[Ordered, ...] = ("rising",) if some(_LARGEST) else ()
    falling: tuple[Ordered, ...] = ("falling",) if some(_LEAST) else ()
    return rising + falling


def _in_order(
    tensor: TensorType, domain: Domain, kind: Ordered, rng: np.random.Generator, scale: float
) -> Array:
    """Numbers that rise below zero or fall above it, or rise above it where they have to be."""
    if not has_kernels(tensor.dtype) or tensor.dtype == "i1" or domain.below is not None:
        return _argument(tensor, domain, "normal", rng, scale)
    share = np.arange(tensor.elements).reshape(tensor.shape) / max(1, tensor.elements)
    rises = share - 1 if kind == "rising" else 1 - share
    if domain.positive or is_unsigned(tensor.dtype):
        rises = 1 + share if kind == "rising" else 2 - share
    if is_float(tensor.dtype):
        return np.asarray(rises * scale).astype(numpy_dtype(tensor.dtype))
    most = min(tensor.elements, 2 ** (8 * BYTES[tensor.dtype] - 2) - 1)
    return np.asarray(np.rint(rises * most)).astype(numpy_dtype(tensor.dtype))


def _few(graph: Graph, rng: np.random.Generator, scale: float) -> tuple[Array, ...]:
    """Sums of few terms, which are exact and about `scale` in size.

    A term that is lost then is far above the rounding of any algorithm, and functions behind the
    sums are steep where these are.  An image that has to be above zero is ones, with few elements
    above it, so that its logarithm has few that are not zero.  What makes another image of zeros,
    as an exponential does, leaves sums of many terms.
    """
    sizes, arrays = _images(graph), []
    facts = zip(graph.arguments, graph.argument_types, domains(graph), strict=True)
    for argument, tensor, domain in facts:
        if not is_float(tensor.dtype):
            values = np.asarray(whole_numbers(tensor, domain, "few", rng), dtype=np.float64)
        else:
            values = rng.choice((1.0,) if domain.positive else (-1.0, 1.0), tensor.shape)
        if argument in sizes:
            few = np.where(rng.random(tensor.shape) < _FEW, scale * sizes[argument], 0.0)
            values = values + few if domain.positive else values * few
        arrays.append(np.asarray(values).astype(numpy_dtype(tensor.dtype)))
    return tuple(arrays)


def _wide(graph: Graph, rng: np.random.Generator, scale: float, period: int) -> tuple[Array, ...]:
    """Odd integers that need the digits of tf32, among zeros; with a `scale` below 1 fewer."""
    terms = max((terms_of(graph, op) for op in graph.ops), default=0)
    share = sqrt(scale * min(1.0, _TF32_TERMS / max(1, terms)))
    bits, arrays = cycle(_TF32_BITS), list[Array]()
    for tensor, domain in zip(graph.argument_types, domains(graph), strict=True):
        if is_float(tensor.dtype):
            drawn_share = None if domain.positive else share
            arrays.append(_odd(tensor, next(bits), drawn_share, rng, period))
        else:
            arrays.append(_argument(tensor, domain, "integers", rng, scale, period))
    return tuple(arrays)


def _odd(
    tensor: TensorType, bits: int, share: float | None, rng: np.random.Generator, period: int
) -> Array:
    """Odd integers of so many bits: all above zero, or a `share` of them, of both signs, with
    zeros in place of the rest."""
    if is_large(tensor.shape, period):
        some = TensorType((period,), tensor.dtype)
        return repeated(_odd(some, bits, share, rng, period), tensor.shape)
    half = 1 << (bits - 1)
    values = half + 2 * rng.integers(0, half // 2, tensor.shape) + 1
    if share is not None:
        signs = rng.choice((-1, 1), tensor.shape)
        values = np.where(rng.random(tensor.shape) < share, signs * values, 0)
    return np.asarray(values).astype(numpy_dtype(tensor.dtype))


def _images(graph: Graph) -> dict[int, float]:
    """Floating arguments that convolutions slide over -> a power of two, the size of elements."""
    producers, found = {r: op for op in graph.ops for r in op.results}, dict[int, float]()
    for op in (op for op in graph.ops if op.name == "stablehlo.convolution"):
        taps, feature = graph.types[op.operands[1]], op["kernel_output_feature_dimension"]
        terms = _FEW * taps.elements / max(1, taps.shape[cast(int, feature)])
        for source in _image_sources(op.operands[0], producers):
            if source in graph.arguments and is_float(graph.types[source].dtype):
                found[source] = 2.0 ** -round(log2(max(1.0, terms)) / 2)
    return found


def _image_sources(value: int, producers: dict[int, Op]) -> set[int]:
    """The values that have to be sparse for `value` to be.

    Of a product or a quotient that is one operand: the one that no broadcast makes.
    """

    def behind(current: int) -> Sequence[int]:
        op = producers.get(current)
        if op is None or op.name in _CONTRACTIONS:
            return ()
        if op.name not in _PRODUCTS:
            return op.operands
        made = {v: getattr(producers.get(v), "name", "") for v in op.operands}
        whole = [v for v in op.operands if made[v] not in _NOT_WHOLE]
        return (whole or op.operands)[:1]

    return _reached(value, behind)


def _argument(
    tensor: TensorType,
    domain: Domain,
    kind: InputKind,
    rng: np.random.Generator,
    scale: float,
    period: int = PERIOD,
) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    if not has_kernels(tensor.dtype):
        return _left_to_xla(tensor, rng, scale)
    if is_large(tensor.shape, period):
        some = TensorType((period,), tensor.dtype)
        return repeated(_argument(some, domain, kind, rng, scale), tensor.shape)
    if not is_float(tensor.dtype):
        return np.asarray(whole_numbers(tensor, domain, kind, rng)).astype(dtype)
    if kind == "integers":
        return np.asarray(_whole_floats(tensor, domain, rng, scale)).astype(dtype)
    values = np.asarray(rng.standard_normal(tensor.shape, dtype=np.float32)) * np.float32(scale)
    if domain.positive:
        values = np.abs(values) + np.float32(0.5)
    elif kind == "special":
        values = _with_specials(values, tensor.dtype, rng, scale)
    return np.asarray(values).astype(dtype)


def _left_to_xla(tensor: TensorType, rng: np.random.Generator, scale: float) -> Array:
    """Values of a type that kernels do not have: normal numbers, or small integers."""
    dtype = numpy_dtype(tensor.dtype)
    if tensor.dtype.startswith(("i", "ui")):
        return np.asarray(rng.integers(0, 2, tensor.shape)).astype(dtype)
    values = rng.standard_normal(tensor.shape) * scale
    if tensor.dtype.startswith("complex"):
        return np.asarray(values + 1j * rng.standard_normal(tensor.shape) * scale).astype(dtype)
    return np.asarray(np.abs(values) if tensor.dtype == "f8E8M0FNU" else values).astype(dtype)


def _whole_floats(
    tensor: TensorType, domain: Domain, rng: np.random.Generator, scale: float
) -> NDArray[np.int64]:
    """Integers up to `scale`; below 1 the share of the elements that are not the least one."""
    largest = max(1, int(scale))
    values = rng.integers(1 if domain.positive else -largest, largest + 1, tensor.shape)
    if scale >= 1:
        return values
    return np.where(rng.random(tensor.shape) < scale, values, int(domain.positive))


def whole_numbers(
    tensor: TensorType, domain: Domain, kind: InputKind, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Small integers; with `special` extremes of the type among them, so that sums wrap."""
    if tensor.dtype == "i1":
        return rng.integers(0, 2, tensor.shape)
    if domain.below is not None:
        return rng.integers(0, max(1, min(domain.below, 127)), tensor.shape)
    least = 1 if domain.positive else 0 if is_unsigned(tensor.dtype) else -4
    values = np.asarray(rng.integers(least, 5, tensor.shape))
    if kind == "special" and not domain.positive:
        bits = 8 * BYTES[tensor.dtype] - (not is_unsigned(tensor.dtype))
        largest = min(2**bits - 1, 2**62)
        extremes = np.array([0 if is_unsigned(tensor.dtype) else -largest, largest])
        chosen = extremes[rng.integers(0, 2, tensor.shape)]
        values = np.where(rng.random(tensor.shape) < 0.1, chosen, values)
    return values


def _with_specials(
    values: NDArray[np.float32], dtype: str, rng: np.random.Generator, scale: float
) -> NDArray[np.float32]:
    """A tenth zeros, ones, large and tiny; some subnormal."""
    kinds = np.array(_SPECIAL) * np.array([1, 1, 1, 1, scale, scale, 1, 1])
    if dtype == "f16":
        kinds = np.clip(kinds, -100.0, 100.0)
    chosen = kinds[rng.integers(0, len(kinds), values.shape)]
    mixed = np.where(rng.random(values.shape) < 0.1, chosen, values)
    tiny = 1e-7 if dtype == "f16" else 1e-40
    share = min(_SUBNORMAL_SHARE, MOST_SUBNORMAL / max(1, values.size))
    small = np.where(rng.random(values.shape) < share, np.sign(values) * tiny, mixed)
    return small.astype(np.float32)

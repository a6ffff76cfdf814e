"""What a kernel is called where people read it: `conv2d 56x56x64->64 k3 s1 +scale+add+relu`."""

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import cast

from hlotune.hlo.constants import literal_of
from hlotune.hlo.graph import Op
from hlotune.hlo.sites.contractions import after, before
from hlotune.hlo.sites.fusible import REDUCTIONS, WINDOWS
from hlotune.hlo.sites.pattern_names import pattern_name, reduction_name
from hlotune.hlo.sites.region import Group, Region
from hlotune.hlo.to_compute.cumulative import WINDOW
from hlotune.hlo.to_compute.updates import merges

SHORT = {
    "maximum": "max", "minimum": "min", "logistic": "sigmoid", "exponential": "exp",
    "negate": "neg", "divide": "div", "subtract": "sub", "multiply": "mul", "scatter": "set",
    "dynamic_update_slice": "set", "broadcast_in_dim": "broadcast",
}  # fmt: skip
LONGEST = 5
"""Operations named in a label; of a longer chain the rest is counted."""


def label(region: Region, group: Group) -> str:
    """`161 arrays of mul+add 2048x1000`, by the largest of them, where there are many."""
    if group.parts:
        each = [Group(max(p), p, group.pattern) for p in group.parts]
        largest = max(
            each, key=lambda g: max(region.type(_result(region, m)).elements for m in g.members)
        )
        return f"{len(each)} arrays of {label(region, largest)}"
    if group.pattern == "attention":
        return _attention(region, group)
    return _contraction(region, group) if group.pattern == "contraction" else _fused(region, group)


def _result(region: Region, member: int) -> int:
    return region.graph.ops[member].results[0]


def _attention(region: Region, group: Group) -> str:
    """`attention 12*128x64x128`: heads, queries, the depth of their scores, keys."""
    ops = region.graph.ops
    first = next(m for m in sorted(group.members) if ops[m].name == ops[group.root].name)
    head = _dot(region, ops[first]).replace("dot", "attention", 1)
    dtype = region.type(ops[first].operands[0]).dtype
    return " ".join([head, *([] if dtype == "f32" else [dtype])])


def _fused(region: Region, group: Group) -> str:
    """`softmax 512x1024`, `add+relu 56x56x256`, `sum 512x1024->512`."""
    ops = region.graph.ops
    name = pattern_name(region, group) or "+".join(_chain(region, group.members))
    reductions = [ops[m] for m in sorted(group.members) if ops[m].name in REDUCTIONS]
    walked = [ops[m].results[0] for m in group.members] + [op.operands[0] for op in reductions]
    widest = max(walked, key=lambda v: (region.type(v).elements, -v))
    extents = _shape(region, widest)
    if group.pattern == "reduction":
        extents += f"->{_shape(region, reductions[0].results[0])}"
    dtype = region.type(widest).dtype
    windows = [op for op in reductions if op.name in WINDOWS] * (group.pattern == "window")
    sizes = next(map(_windows, windows), [])
    return " ".join([name, extents, *sizes, *([] if dtype == "f32" else [dtype])])


def _windows(op: Op) -> list[str]:
    """`k3 s2` of a window, what is 1 along a dimension left out, and its dilation."""
    window, strides = _ints(op, "window_dimensions"), _ints(op, "window_strides")
    spread = _ints(op, "window_dilations") if op.name == WINDOW else (1,) * len(window)
    walked = [d for d, n in enumerate(window) if n > 1] or [0]
    size, stride, apart = ([x[d] for d in walked] for x in (window, strides, spread))
    return [f"k{_equal(size)}", f"s{_equal(stride)}", *filter(None, [_option("d", apart)])]


def _shape(region: Region, value: int) -> str:
    """The extents of a value that are more than 1."""
    return "x".join(str(n) for n in region.type(value).shape if n > 1) or "1"


def _contraction(region: Region, group: Group) -> str:
    op = region.graph.ops[group.root]
    head = _dot(region, op) if op.name == "stablehlo.dot_general" else _convolution(region, op)
    dtype = region.type(op.operands[0]).dtype
    parts = [head] if dtype == "f32" else [head, dtype]
    if ahead := before(region, group):
        parts.append("".join(f"{name}+" for name in _chain(region, ahead)))
    if behind := after(region, group):
        parts.append("".join(f"+{name}" for name in _chain(region, behind)))
    return " ".join(parts)


def _ints(op: Op, name: str) -> tuple[int, ...]:
    return cast(tuple[int, ...], op[name])


def _dot(region: Region, op: Op) -> str:
    """`dot 64x784x512`: rows, terms of each sum, columns; `dot 8*64x784x512` of a batch of 8."""
    left, right = (region.type(v).shape for v in op.operands)
    batch = prod(left[d] for d in _ints(op, "lhs_batching_dimensions"))
    terms = prod(left[d] for d in _ints(op, "lhs_contracting_dimensions"))
    rows, columns = _own(op, "lhs", left), _own(op, "rhs", right)
    return f"dot {f'{batch}*' if batch > 1 else ''}{rows}x{terms}x{columns}"


def _own(op: Op, side: str, shape: Sequence[int]) -> int:
    """Elements along the dimensions that an operand of a dot shares with no other."""
    shared = _ints(op, f"{side}_batching_dimensions") + _ints(op, f"{side}_contracting_dimensions")
    return prod(n for d, n in enumerate(shape) if d not in shared)


def _convolution(region: Region, op: Op) -> str:
    """`conv2d 8*56x56x64->128 k3 s2`: images, extents, channels in and out, window, stride."""
    left, right = (region.type(v).shape for v in op.operands)
    spatial = [left[d] for d in _ints(op, "input_spatial_dimensions")]
    images = left[cast(int, op["input_batch_dimension"])]
    channels = left[cast(int, op["input_feature_dimension"])]
    features = right[cast(int, op["kernel_output_feature_dimension"])]
    window = [right[d] for d in _ints(op, "kernel_spatial_dimensions")]
    head = f"conv{len(spatial)}d {f'{images}*' if images > 1 else ''}"
    extents = "x".join(map(str, [*spatial, channels]))
    extras = [
        _option("u", _ints(op, "lhs_dilation")),
        _option("d", _ints(op, "rhs_dilation")),
        _option("g", (cast(int, op["feature_group_count"]),)),
        _option("bg", (cast(int, op["batch_group_count"]),)),
    ]
    sizes = [f"k{_equal(window)}", f"s{_equal(_ints(op, 'window_strides'))}", *filter(None, extras)]
    return f"{head}{extents}->{features} {' '.join(sizes)}"


def _equal(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes[:1] if len(set(sizes)) == 1 else sizes))


def _option(letter: str, sizes: Sequence[int]) -> str:
    return "" if set(sizes) <= {1} else f"{letter}{_equal(sizes)}"


def _chain(region: Region, members: frozenset[int]) -> list[str]:
    """Names of operations in order; neighbouring scales and biases of channels are one `scale`."""
    names = [
        _name(region, m) for m in sorted(members) if region.graph.ops[m].name != "stablehlo.slice"
    ]
    merged: list[str] = []
    for is_affine, run in groupby(names, lambda n: n in ("scale", "bias")):
        several = list(run)
        if is_affine:
            merged.append("scale" if "scale" in several else "bias")
        else:
            merged.extend(several)
    left_out = len(merged) - LONGEST
    return merged if left_out < 2 else [*merged[:LONGEST], f"{left_out} more"]


def _name(region: Region, member: int) -> str:
    op = region.graph.ops[member]
    if op.name in REDUCTIONS:
        return reduction_name(region, member)
    if merges(op):
        return "scatter"
    name = op.name.partition(".")[2]
    narrow = any(region.is_narrow(v) or _is_broadcast(region, v) for v in op.operands)
    if name == "maximum" and any(_is_zero(region, v) for v in op.operands):
        return "relu"
    if name == "convert":
        return region.type(op.results[0]).dtype
    if narrow and name in ("add", "subtract"):
        return "bias"
    if narrow and name in ("multiply", "divide"):
        return "scale"
    return SHORT.get(name, name)


def _is_broadcast(region: Region, value: int) -> bool:
    op = region.producer(value)
    return op is not None and op.name == "stablehlo.broadcast_in_dim"


def _is_zero(region: Region, value: int) -> bool:
    op = region.producer(value)
    if op is not None and op.name == "stablehlo.broadcast_in_dim":
        op = region.producer(op.operands[0])
    literal = literal_of(op)
    return literal is not None and not literal.array().any()

"""Dots and convolutions as axes and index maps, as the StableHLO specification defines them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.index_maps import Index
from hlotune.schedules.ir.compute import Axis
from hlotune.schedules.ir.expr import Affine

CONTRACTIONS = ("stablehlo.dot_general", "stablehlo.convolution")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dimension of an operand is read: `index / divisor`, zero between and outside."""

    index: Affine
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class Contraction:
    """`result[output] = sum over reduce of lhs[places[0]] * rhs[places[1]]`, for all `parallel`."""

    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    output: Index
    places: tuple[tuple[Place, ...], tuple[Place, ...]]


def contraction(graph: Graph, op: Op) -> Contraction:
    lhs, rhs = (graph.types[v].shape for v in op.operands)
    output = graph.types[op.results[0]].shape
    if op.name == "stablehlo.dot_general":
        return _dot(op, lhs, rhs, output)
    return _convolution(op, lhs, rhs, output)


def numbers(op: Op, name: str) -> tuple[int, ...]:
    return cast(tuple[int, ...], op[name])


def _dot(op: Op, lhs: Sequence[int], rhs: Sequence[int], output: Sequence[int]) -> Contraction:
    sides = ("lhs", "rhs")
    batch = tuple(numbers(op, f"{side}_batching_dimensions") for side in sides)
    contracting = tuple(numbers(op, f"{side}_contracting_dimensions") for side in sides)
    parallel = tuple(Axis(f"p{d}", n) for d, n in enumerate(output))
    reduce = tuple(Axis(f"q{k}", lhs[d]) for k, d in enumerate(contracting[0]))
    free = iter(parallel[len(batch[0]) :])
    places: list[tuple[Place, ...]] = []
    for side, shape in enumerate((lhs, rhs)):
        axes: dict[int, Axis] = dict(zip(batch[side], parallel, strict=False))
        axes |= zip(contracting[side], reduce, strict=True)
        axes |= {d: next(free) for d in range(len(shape)) if d not in axes}
        places.append(tuple(Place(Affine.axis(axes[d].name)) for d in range(len(shape))))
    return Contraction(
        parallel, reduce, tuple(Affine.axis(a.name) for a in parallel), (places[0], places[1])
    )


def _convolution(
    op: Op, lhs: Sequence[int], rhs: Sequence[int], output: Sequence[int]
) -> Contraction:
    """Features are two axes, group and feature in group; so are input features, or batches."""
    groups, batch_groups = cast(int, op["feature_group_count"]), cast(int, op["batch_group_count"])
    batch, feature = (cast(int, op[f"output_{n}_dimension"]) for n in ("batch", "feature"))
    features_per_group = output[feature] // (groups * batch_groups)
    inputs_per_group = rhs[cast(int, op["kernel_input_feature_dimension"])]

    axes = [[Axis(f"p{d}", n)] for d, n in enumerate(output)]
    axes[feature] = [Axis("g", groups * batch_groups), Axis("f", features_per_group)]
    kernel = numbers(op, "kernel_spatial_dimensions")
    reduce = (*(Axis(f"q{k}", rhs[d]) for k, d in enumerate(kernel)), Axis("c", inputs_per_group))

    group, out_feature = Affine.axis("g"), Affine.of({"g": features_per_group, "f": 1})
    in_batch, in_feature = Affine.axis(f"p{batch}"), Affine.axis("c")
    if groups > 1:
        in_feature += group * inputs_per_group
    if batch_groups > 1:
        in_batch += group * output[batch]
    left, right = _windows(op, rhs)
    lhs_places = Place(in_batch), Place(in_feature)
    rhs_places = Place(out_feature), Place(Affine.axis("c"))
    places = (
        _arranged(op, "input", ("batch", "feature"), lhs_places, left),
        _arranged(op, "kernel", ("output_feature", "input_feature"), rhs_places, right),
    )
    index = [Affine.axis(f"p{d}") for d in range(len(output))]
    index[feature] = out_feature
    return Contraction(tuple(a for run in axes for a in run), reduce, tuple(index), places)


def _windows(op: Op, rhs: Sequence[int]) -> tuple[list[Place], list[Place]]:
    """Places of the spatial dimensions, of the input and of the kernel."""
    padding = cast(tuple[tuple[int, int], ...], op["padding"])
    reversal = cast(tuple[bool, ...], op["window_reversal"])
    left, right = [], []
    for k, out in enumerate(numbers(op, "output_spatial_dimensions")):
        stride, dilation = numbers(op, "window_strides")[k], numbers(op, "rhs_dilation")[k]
        read = Affine.of({f"p{out}": stride, f"q{k}": dilation}, -padding[k][0])
        left.append(Place(read, numbers(op, "lhs_dilation")[k]))
        last = rhs[numbers(op, "kernel_spatial_dimensions")[k]] - 1
        right.append(Place(Affine.of({f"q{k}": -1}, last) if reversal[k] else Affine.axis(f"q{k}")))
    return left, right


def _arranged(
    op: Op, side: str, names: Sequence[str], values: Sequence[Place], spatial: Sequence[Place]
) -> tuple[Place, ...]:
    """The places of one array, in the order of its dimensions."""
    places = dict(zip(numbers(op, f"{side}_spatial_dimensions"), spatial, strict=True))
    for name, value in zip(names, values, strict=True):
        places[cast(int, op[f"{side}_{name}_dimension"])] = value
    return tuple(places[d] for d in range(len(places)))

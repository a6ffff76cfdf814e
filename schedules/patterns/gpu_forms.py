"""Computes, recognised as kernels that GPUs have schedules for.

A form says which kernel it is, and how the compute's tensors become the kernel's operands: each is
a tensor with its axes in another order, then in another shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.patterns.attention import is_attention
from hlotune.schedules.patterns.contraction import Contraction, contraction
from hlotune.schedules.patterns.gpu import (
    ELEMENT_BYTES,
    Epilogue,
    GpuConvolution,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.patterns.gpu_attention import AttentionForm, Walked, gpu_attention
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages, gpu_stages
from hlotune.schedules.patterns.gpu_tails import Tail, tail_of
from hlotune.schedules.patterns.inlined import LEFT_ALONE
from hlotune.schedules.patterns.rows import has_matrix_product, is_rows
from hlotune.schedules.targets.target import F32Operands

ROOT_OFF = 2e-3
"""The largest error that rounding to a narrow float may leave in the constant sqrt(0.5)."""


@dataclass(frozen=True, slots=True)
class Operand:
    """How a tensor of a compute becomes an operand of a kernel, or its result the compute's.

    The tensor is sliced, reshaped to `view`, transposed by `order`, and reshaped to `shape`.
    """

    tensor: str
    order: tuple[int, ...]
    """The dimensions of the view, in the order in which the kernel reads them."""
    shape: tuple[int, ...]
    """The final shape, that of the kernel's operand."""
    view: tuple[int, ...] = ()
    """The shape with one dimension for each axis; empty where the tensor has it already."""
    slices: tuple[tuple[int, int, int], ...] = ()
    """The start, end and step of the slice of each dimension; empty for the whole tensor."""


@dataclass(frozen=True, slots=True)
class GpuForm:
    """A compute as a kernel for GPUs; the kernel's results are reshaped to the compute's."""

    kernel: AnyGpuKernel
    operands: tuple[Operand, ...]
    result: Operand | None = None
    """How the only result becomes the compute's; None where a reshape is enough."""


def gpu_form(compute: Compute, f32_operands: F32Operands = "f32") -> GpuForm:
    """Recognises a compute as a kernel for GPUs.

    Products of f32 are of the element `f32_operands` where the program leaves that to the device.

    Raises UnsupportedKernel where GPUs have schedules for no such kernel.
    """
    form = _form(compute)
    kernel = form.kernel
    if not compute.leaves_precision or isinstance(kernel, GpuRows | GpuStages):
        return form
    if kernel.element != "f32" or f32_operands == "f32":
        return form
    return replace(form, kernel=replace(kernel, element=f32_operands))


def _form(compute: Compute) -> GpuForm:
    if is_attention(compute):
        return _attention(gpu_attention(compute), compute)
    if is_rows(compute):
        return _rows(compute)
    try:
        return _contraction(contraction(compute))
    except UnsupportedKernel:
        if has_matrix_product(compute):
            raise
        return _rows(compute)


def _rows(compute: Compute) -> GpuForm:
    stages = gpu_stages(compute)
    return GpuForm(stages, tuple(_whole(t) for t in stages.arguments))


def _contraction(found: Contraction) -> GpuForm:
    compute = found.compute
    left, right = _operands(found.core)
    made = {x.tensor for s in compute.stages for x in s.stores}
    if {left.tensor, right.tensor} & made:
        raise UnsupportedKernel(f"expected operands that are arguments, got {left}: {LEFT_ALONE}")
    element = compute.tensor(left.tensor).dtype
    if element not in ELEMENT_BYTES or compute.tensor(right.tensor).dtype != element:
        raise UnsupportedKernel(
            f"expected two operands of one type of {', '.join(ELEMENT_BYTES)}, got "
            f"{element} and {compute.tensor(right.tensor).dtype}: {LEFT_ALONE}"
        )
    if all(len(e.terms) == 1 and not e.constant for x in (left, right) for e in x.index):
        return _product(found, left, right, element)
    return _convolution(found, left, right, element)


def _attention(found: AttentionForm, compute: Compute) -> GpuForm:
    a = found.kernel
    walked = (
        (found.queries, (a.heads, a.queries, a.depth)),
        (found.keys, (a.key_heads, a.keys, a.depth)),
        (found.values, (a.key_heads, a.keys, a.features)),
    )
    read = a.scores.tensors if a.scores else ()
    operands = (*(_walked(w, shape) for w, shape in walked), *map(_whole, read))
    result = compute.tensor(found.result.tensor)
    return GpuForm(a, operands, _walked(found.result, result.shape))


def _walked(w: Walked, shape: tuple[int, ...]) -> Operand:
    return Operand(w.tensor, w.order, shape, w.view, tuple((*s, 1) for s in w.slices))


def _whole(tensor: Tensor) -> Operand:
    return Operand(tensor.name, tuple(range(len(tensor.shape))), tensor.shape)


def _operands(core: Stage) -> tuple[Load, Load]:
    """The two loads whose product is summed, without the conversions that widen them."""
    value = core.values[0]
    if isinstance(value, Apply) and value.op == "multiply":
        left, right = map(_unconverted, value.args)
        if isinstance(left, Load) and isinstance(right, Load) and left.tensor != right.tensor:
            return left, right
    raise UnsupportedKernel(f"expected a sum of products of two tensors, got {value}: {LEFT_ALONE}")


def _unconverted(value: Expr) -> Expr:
    return value.args[0] if isinstance(value, Apply) and value.op == "convert" else value


def _product(c: Contraction, left: Load, right: Load, element: str) -> GpuForm:
    """A product of matrices, batched or not; several axes may make up one dimension of it."""
    axes = {side: [_axis(e) for e in load.index] for side, load in (("l", left), ("r", right))}
    parallel, reduce = [a.name for a in c.parallel], [a.name for a in c.reduce]
    batch = [a for a in parallel if a in axes["l"] and a in axes["r"]]
    rows = [a for a in parallel if a in axes["l"] and a not in batch]
    columns = [a for a in parallel if a in axes["r"] and a not in batch]
    if parallel != [*batch, *rows, *columns] or not rows or not columns:
        raise UnsupportedKernel(
            f"expected results in the order batch, rows, columns, got {' '.join(parallel)}: "
            f"{LEFT_ALONE}"
        )
    b, m, k, n = (prod(c.core.extents[a] for a in part) for part in (batch, rows, reduce, columns))
    ending = _ending(c, element, columns)
    first = (b,) if b > 1 else ()
    operands = [
        _ordered(c, left, [*batch, *rows, *reduce], (*first, m, k)),
        _ordered(c, right, [*batch, *reduce, *columns], (*first, k, n)),
        *ending.operands,
    ]
    kernel = GpuProduct(m, k, n, element, b, ending.epilogue, ending.tail)
    return GpuForm(kernel, tuple(operands))


def _ordered(c: Contraction, load: Load, axes: Sequence[str], shape: tuple[int, ...]) -> Operand:
    """The operand of a load that reads one dimension along each of `axes`, maybe with strides."""
    read = [_axis(e) for e in load.index]
    if sorted(read) != sorted(axes):
        raise UnsupportedKernel(
            f"expected {load.tensor} to be read once along {' '.join(axes)}, got "
            f"{' '.join(read)}: {LEFT_ALONE}"
        )
    steps = [e.terms[0][1] for e in load.index]
    slices = [(0, s * (c.core.extents[a] - 1) + 1, s) for a, s in zip(read, steps, strict=True)]
    order = tuple(read.index(a) for a in axes)
    return Operand(load.tensor, order, shape, (), tuple(slices) if max(steps) > 1 else ())


def _axis(index: Affine) -> str:
    """The axis of an index that is one axis times a positive step.

    Raises UnsupportedKernel for any other index.
    """
    if index.constant or len(index.terms) != 1 or index.terms[0][1] < 1:
        raise UnsupportedKernel(f"expected an index that is an axis, got {index}: {LEFT_ALONE}")
    return index.terms[0][0]


@dataclass(frozen=True, slots=True)
class _Ending:
    """The computation that follows the sums, and the operands that it reads."""

    epilogue: Epilogue
    tail: Tail | None
    operands: tuple[Operand, ...]


def _ending(c: Contraction, element: str, columns: Sequence[str]) -> _Ending:
    """The standard epilogue that the last stage is, else the stage as a tail."""
    try:
        if c.before:
            raise UnsupportedKernel(f"expected one sum, got {c.before[0].name}: {LEFT_ALONE}")
        epilogue, bias = _epilogue(c, columns)
    except UnsupportedKernel:
        tail = tail_of(c.compute, c.core.name, len(c.parallel) - len(columns))
        return _Ending("none", tail, tuple(map(_whole, tail.tensors)))
    if bias is None:
        return _Ending(epilogue, None, ())
    tensor = c.compute.tensor(bias.tensor)
    if tensor.dtype != element:
        raise UnsupportedKernel(f"expected a bias of type {element}: {LEFT_ALONE}")
    n = prod(c.core.extents[a] for a in columns)
    return _Ending(epilogue, None, (_ordered(c, bias, columns, (n,)),))


def _epilogue(c: Contraction, columns: Sequence[str]) -> tuple[Epilogue, Load | None]:
    """The epilogue that the last stage is, and the load of its bias, if it has one."""
    value = _unconverted(c.out.values[0])
    match value:
        case Load():
            return "none", None
        case Apply("maximum", (Apply("add") as inner, Const(value=0.0))):
            return "bias_relu", _bias(inner, columns)
        case Apply("add"):
            return "bias", _bias(value, columns)
        case Apply("multiply") if (biased := _gaussian(value)) is not None:
            return "bias_gelu", _bias(biased, columns)
    raise UnsupportedKernel(
        "expected sums alone, with a bias, or with a bias and a rectifier or a Gaussian unit, "
        f"got {value}: {LEFT_ALONE}"
    )


def _gaussian(value: Expr) -> Apply | None:
    """The x of a value `0.5 * x * erfc(-x * sqrt(0.5))`; None for any other value."""
    match _bare(value):
        case Apply("multiply", (Apply("multiply", (Const(value=0.5), x)), Apply("erfc", (tail,)))):
            match tail:
                case Apply("multiply", (Apply("negate", (again,)), Const(value=root))):
                    is_root = abs(float(root) - sqrt(0.5)) < ROOT_OFF
                    return x if x == again and is_root and isinstance(x, Apply) else None
    return None


def _bare(value: Expr) -> Expr:
    """The expression without its conversions, since kernels compute in f32."""
    value = _unconverted(value)
    if not isinstance(value, Apply):
        return value
    return Apply(value.op, tuple(map(_bare, value.args)), value.dtype)


def _bias(added: Apply, columns: Sequence[str]) -> Load:
    total, bias = map(_unconverted, added.args)
    if isinstance(total, Load) and isinstance(bias, Load) and bias.axes:
        along = {a for e in bias.index for a, _ in e.terms}
        if along == set(columns):
            return bias
    raise UnsupportedKernel(f"expected a sum and one bias a column, got {added}: {LEFT_ALONE}")


def _convolution(c: Contraction, left: Load, right: Load, element: str) -> GpuForm:
    """A convolution of images `(batch, size, size, channels)`, in groups or not.

    Weights are `(window, window, channels of a group, features)`.
    """
    images, weights = (c.compute.tensor(x.tensor) for x in (left, right))
    if len(c.parallel) not in (4, 5) or len(c.reduce) != 3 or len(images.shape) != 4:
        raise UnsupportedKernel(f"expected a convolution of images, got {c.core}: {LEFT_ALONE}")
    n, y, x, *features = (a.name for a in c.parallel)
    v, u, k = (a.name for a in c.reduce)
    extents = c.core.extents
    ending = _ending(c, element, features)
    kernel = GpuConvolution(
        batch=images.shape[0],
        size=images.shape[1],
        channels=images.shape[3],
        features=weights.shape[3],
        window=weights.shape[0],
        stride=left.index[1].coefficients.get(y, 0),
        padding=-left.index[1].constant,
        element=element,
        epilogue=ending.epilogue,
        dilation=left.index[1].coefficients.get(v, 0),
        groups=extents[features[0]] if len(features) == 2 else 1,
        tail=ending.tail,
    )
    channel = _in_group(features[:-1], k, kernel.group_channels)
    feature = _in_group(features[:-1], features[-1], extents[features[-1]])
    read = (Affine.axis(n), *_window(kernel, ((y, v), (x, u))), channel)
    window = (*map(Affine.axis, (v, u, k)), feature)
    out = (extents[y], extents[x])
    if (left.index, right.index) != (read, window) or not _is_whole(kernel, left, right, c, out):
        raise UnsupportedKernel(
            "expected a convolution of square images with channels last and square windows, got "
            f"{left} and {right}: {LEFT_ALONE}"
        )
    return GpuForm(kernel, (_whole(images), _whole(weights), *ending.operands))


def _is_whole(
    kernel: GpuConvolution, left: Load, right: Load, c: Contraction, out: tuple[int, int]
) -> bool:
    """Whether images and windows are square and read without further gaps, and every result is
    computed."""
    images, weights = (c.compute.tensor(x.tensor).shape for x in (left, right))
    is_square = images[1] == images[2] and weights[0] == weights[1]
    steps = kernel.stride > 0 and kernel.dilation > 0 and kernel.padding >= 0
    plain = not any(left.divisors) and not any(right.divisors)
    return is_square and plain and steps and out == (kernel.out, kernel.out)


def _window(c: GpuConvolution, axes: Sequence[tuple[str, str]]) -> tuple[Affine, ...]:
    """The index that windows read at, for each pair of an output axis and a window axis."""
    return tuple(
        Affine.axis(p, c.stride) + Affine.axis(r, c.dilation) + -c.padding for p, r in axes
    )


def _in_group(group: Sequence[str], axis: str, extent: int) -> Affine:
    """The index of a channel or feature among all groups, from its place in its own."""
    whole = Affine.axis(axis)
    return whole + Affine.axis(group[0], extent) if group else whole

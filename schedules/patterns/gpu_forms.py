"""Computes recognised as kernels that GPUs have schedules for.

A form says which kernel it is, and how the compute's tensors become the kernel's operands: each is
a tensor with its axes in another order, then in another shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.split_stored import split_stored
from hlotune.schedules.patterns.attention import is_attention
from hlotune.schedules.patterns.contraction import Contraction, contraction
from hlotune.schedules.patterns.gpu import (
    ELEMENT_BYTES,
    Epilogue,
    GpuConvolution,
    GpuProduct,
)
from hlotune.schedules.patterns.gpu_attention import AttentionForm, Walked, gpu_attention
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, gpu_stages
from hlotune.schedules.patterns.inlined import LEFT_ALONE
from hlotune.schedules.patterns.rows import is_rows


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of a compute as a kernel takes it; or a kernel's result as the compute has it."""

    tensor: str
    order: tuple[int, ...]
    """Its dimensions in the order that the kernel reads them in."""
    shape: tuple[int, ...]
    """What it is reshaped to then."""
    view: tuple[int, ...] = ()
    """What it is reshaped to before, where a dimension has several axes."""
    slices: tuple[tuple[int, int], ...] = ()
    """Of each dimension, from and to, before all that; all of it where there are none."""


@dataclass(frozen=True, slots=True)
class GpuForm:
    """A compute as a kernel for GPUs; its results are reshaped to the compute's."""

    kernel: AnyGpuKernel
    operands: tuple[Operand, ...]
    result: Operand | None = None
    """Where axes of the one result stand in another order."""


def gpu_form(compute: Compute) -> GpuForm:
    """The kernel that a compute is.

    Raises UnsupportedKernel where it is none that GPUs have schedules for.
    """
    if is_attention(split_stored(compute)):
        return _attention(gpu_attention(compute), compute)
    if is_rows(compute):
        stages = gpu_stages(compute)
        return GpuForm(stages, tuple(_whole(t) for t in stages.arguments))
    found = contraction(compute)
    if found.before:
        raise UnsupportedKernel(
            f"expected one reduction and a last stage, got {[s.name for s in compute.stages]}: "
            f"{LEFT_ALONE}"
        )
    left, right = _operands(found.core)
    element = compute.tensor(left.tensor).dtype
    if element not in ELEMENT_BYTES or compute.tensor(right.tensor).dtype != element:
        raise UnsupportedKernel(
            f"expected two operands of one type of {', '.join(ELEMENT_BYTES)}, got "
            f"{element} and {compute.tensor(right.tensor).dtype}: {LEFT_ALONE}"
        )
    if all(len(e.terms) == 1 for x in (left, right) for e in x.index):
        return _product(found, left, right, element)
    return _convolution(found, left, right, element)


def _attention(found: AttentionForm, compute: Compute) -> GpuForm:
    a = found.kernel
    shapes = ((a.heads, n, a.depth) for n in (a.queries, a.keys, a.keys))
    walked = (found.queries, found.keys, found.values)
    operands = tuple(_walked(w, shape) for w, shape in zip(walked, shapes, strict=True))
    result = compute.tensor(found.result.tensor)
    return GpuForm(a, operands, _walked(found.result, result.shape))


def _walked(w: Walked, shape: tuple[int, ...]) -> Operand:
    return Operand(w.tensor, w.order, shape, w.view, w.slices)


def _whole(tensor: Tensor) -> Operand:
    return Operand(tensor.name, tuple(range(len(tensor.shape))), tensor.shape)


def _operands(core: Stage) -> tuple[Load, Load]:
    """The two loads whose product is summed up, without what widens them."""
    value = core.values[0]
    if isinstance(value, Apply) and value.op == "multiply":
        left, right = map(_unconverted, value.args)
        if isinstance(left, Load) and isinstance(right, Load) and left.tensor != right.tensor:
            return left, right
    raise UnsupportedKernel(f"expected a sum of products of two tensors, got {value}: {LEFT_ALONE}")


def _unconverted(value: Expr) -> Expr:
    return value.args[0] if isinstance(value, Apply) and value.op == "convert" else value


def _product(c: Contraction, left: Load, right: Load, element: str) -> GpuForm:
    """A product of matrices, with a batch or without; several axes may stand for one."""
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
    epilogue, bias = _epilogue(c, columns)
    first = (b,) if b > 1 else ()
    operands = [
        _ordered(left, [*batch, *rows, *reduce], (*first, m, k)),
        _ordered(right, [*batch, *reduce, *columns], (*first, k, n)),
        *([_ordered(bias, columns, (n,))] if bias else []),
    ]
    if bias and c.compute.tensor(bias.tensor).dtype != element:
        raise UnsupportedKernel(f"expected a bias of type {element}: {LEFT_ALONE}")
    return GpuForm(GpuProduct(m, k, n, element, b, epilogue), tuple(operands))


def _ordered(load: Load, axes: Sequence[str], shape: tuple[int, ...]) -> Operand:
    """A tensor read along these axes, each of which is one of its dimensions."""
    read = [_axis(e) for e in load.index]
    if sorted(read) != sorted(axes):
        raise UnsupportedKernel(
            f"expected {load.tensor} to be read once along {' '.join(axes)}, got "
            f"{' '.join(read)}: {LEFT_ALONE}"
        )
    return Operand(load.tensor, tuple(read.index(a) for a in axes), shape)


def _axis(index: Affine) -> str:
    """The one axis that an index follows from its beginning on."""
    if index.constant or len(index.terms) != 1 or index.terms[0][1] != 1:
        raise UnsupportedKernel(f"expected an index that is an axis, got {index}: {LEFT_ALONE}")
    return index.terms[0][0]


def _epilogue(c: Contraction, columns: Sequence[str]) -> tuple[Epilogue, Load | None]:
    """What the last stage does with a sum, and the bias that it adds to it."""
    value = _unconverted(c.out.values[0])
    match value:
        case Load():
            return "none", None
        case Apply("maximum", (Apply("add") as inner, Const(value=0.0))):
            return "bias_relu", _bias(inner, columns)
        case Apply("add"):
            return "bias", _bias(value, columns)
    raise UnsupportedKernel(
        f"expected sums as they are, with a bias, or with a bias and a rectifier, got {value}: "
        f"{LEFT_ALONE}"
    )


def _bias(added: Apply, columns: Sequence[str]) -> Load:
    total, bias = added.args
    if isinstance(total, Load) and isinstance(bias, Load) and len(bias.index) == len(columns):
        return bias
    raise UnsupportedKernel(f"expected a sum and one bias a column, got {added}: {LEFT_ALONE}")


def _convolution(c: Contraction, left: Load, right: Load, element: str) -> GpuForm:
    """Images `(batch, size, size, channels)` with square windows `(window, window, in, out)`."""
    images, weights = (c.compute.tensor(x.tensor) for x in (left, right))
    if len(c.parallel) != 4 or len(c.reduce) != 3 or _epilogue(c, [])[0] != "none":
        raise UnsupportedKernel(
            f"expected a plain convolution of images, got {c.core}: {LEFT_ALONE}"
        )
    n, y, x, f = (a.name for a in c.parallel)
    v, u, k = (a.name for a in c.reduce)
    stride = left.index[1].coefficients.get(y, 0)
    padding = -left.index[1].constant
    expected = (
        Affine.axis(n),
        *(Affine.axis(p, stride) + Affine.axis(r) + -padding for p, r in ((y, v), (x, u))),
        Affine.axis(k),
    )
    window = tuple(map(Affine.axis, (v, u, k, f)))
    batch, size, width, channels = images.shape
    kernel = GpuConvolution(
        batch, size, channels, weights.shape[3], weights.shape[0], stride, padding, element
    )
    extents = c.core.extents
    is_square = size == width and weights.shape[0] == weights.shape[1]
    is_whole = (extents[y], extents[x]) == (kernel.out, kernel.out) if stride > 0 else False
    plain = not any(left.divisors) and not any(right.divisors) and padding >= 0
    if not (left.index == expected and right.index == window and is_square and is_whole and plain):
        raise UnsupportedKernel(
            "expected a convolution of square images with channels last and square windows, got "
            f"{left} and {right}: {LEFT_ALONE}"
        )
    operands = (
        Operand(images.name, (0, 1, 2, 3), images.shape),
        Operand(weights.name, (0, 1, 2, 3), weights.shape),
    )
    return GpuForm(kernel, operands)

"""Expressions in other types: wider to compute in, narrower to store; what has none."""

import numpy as np

from hlotune.hlo.graph import Op, numpy_dtype
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import (
    Apply,
    Const,
    Expr,
)


def short_name(op: Op) -> str:
    """`add` of `stablehlo.add`."""
    return op.name.partition(".")[2]


def unsupported(op: Op) -> UnsupportedKernel:
    return UnsupportedKernel(
        f"expected elementwise operations, reductions, and one dot_general or convolution, got "
        f"{op.name}; the kernel stays with the default compiler"
    )


def widened(expr: Expr) -> Expr:
    return converted(expr, accumulator(expr.dtype))


def converted(expr: Expr, dtype: str) -> Expr:
    """The expression in another type; a rounding that this would undo is kept."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        with np.errstate(over="ignore"):  # what f16 cannot hold is an infinity
            value = np.asarray(expr.value, numpy_dtype(expr.dtype)).astype(numpy_dtype(dtype))
        return Const(value.astype(numpy_dtype(accumulator(dtype))).item(), dtype)
    if dtype == "i1":
        return Apply("compare_NE", (expr, Const(0, expr.dtype)), "i1")
    return Apply("convert", (expr,), dtype)


def rounded(expr: Expr, dtype: str) -> Expr:
    """A computed value as the program's narrow type holds it, still in f32."""
    return widened(narrowed(expr, dtype)) if accumulator(dtype) == expr.dtype else expr


def narrowed(expr: Expr, dtype: str) -> Expr:
    """A wide expression as a value of `dtype`; where it is one of these widened, that."""
    if isinstance(expr, Apply) and expr == widened(expr.args[0]) and expr.args[0].dtype == dtype:
        return expr.args[0]
    return converted(expr, dtype)

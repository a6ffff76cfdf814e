"""Functions of each element of one array, as computes that are built by hand."""

from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load

X = Load("a0", (Affine.axis("i"),), "f32")


def of_each(value: Expr, elements: int) -> Compute:
    """`y0[i] = value`, an expression of X."""
    stage = Stage("out", (Axis("i", elements),), (), (Store("y0", X.index),), (value,))
    argument = Tensor("a0", (elements,), "f32", "argument")
    result = Tensor("y0", (elements,), "f32", "result")
    return Compute((argument, result), (stage,))


def applied(*names: str) -> Expr:
    """These functions of X, the first one innermost."""
    value: Expr = X
    for name in names:
        value = Apply(name, (value,), "f32")
    return value

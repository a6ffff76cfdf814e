"""Computes without a contraction that are built by hand: what a program's row kernels become."""

from collections.abc import Callable

from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import ARGMAX, MAX, SUM, Monoid

ROW, COLUMN, DEPTH = Affine.axis("i"), Affine.axis("j"), Affine.axis("k")


def _tensors(dtype: str, role: Role, **shapes: tuple[int, ...]) -> list[Tensor]:
    return [Tensor(name, shape, dtype, role) for name, shape in shapes.items()]


def _apply(op: str, *args: Expr) -> Apply:
    return Apply(op, args, args[0].dtype)


def softmax(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """Largest, exponentials, their sum, quotients: four stages."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, e = Load("a0", (ROW, COLUMN), dtype), Load("e", (ROW, COLUMN), dtype)
    power = _apply("exponential", _apply("subtract", x, Load("top", (ROW,), dtype)))
    quotient = _apply("divide", e, Load("sum", (ROW,), dtype))
    stages = (
        Stage("top", (i,), (j,), (Store("top", (ROW,)),), (x,), MAX),
        Stage("e", (i, j), (), (Store("e", (ROW, COLUMN)),), (power,)),
        Stage("sum", (i,), (j,), (Store("sum", (ROW,)),), (e,), SUM),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),), (quotient,)),
    )
    shape = (rows, columns)
    tensors = _tensors(dtype, "argument", a0=shape) + _tensors(dtype, "result", y0=shape)
    tensors += _tensors(dtype, "temporary", top=(rows,), e=shape, sum=(rows,))
    return Compute(tuple(tensors), stages)


def layer_norm(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """Sum, mean, squares of what is left, its root, and the scaled rest: five stages."""
    i, j, share = Axis("i", rows), Axis("j", columns), Const(1 / columns, dtype)
    x = Load("a0", (ROW, COLUMN), dtype)
    rest = _apply("subtract", x, Load("mean", (ROW,), dtype))
    mean = _apply("multiply", Load("sum", (ROW,), dtype), share)
    variance = _apply("multiply", Load("squares", (ROW,), dtype), share)
    root = _apply("rsqrt", _apply("add", variance, Const(1e-5, dtype)))
    scaled = _apply("multiply", _apply("multiply", rest, Load("root", (ROW,), dtype)),
                    Load("a1", (COLUMN,), dtype))  # fmt: skip
    stages = (
        Stage("sum", (i,), (j,), (Store("sum", (ROW,)),), (x,), SUM),
        Stage("mean", (i,), (), (Store("mean", (ROW,)),), (mean,)),
        Stage("squares", (i,), (j,), (Store("squares", (ROW,)),), (_apply("multiply", rest, rest),),
              SUM),
        Stage("root", (i,), (), (Store("root", (ROW,)),), (root,)),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),), (_apply("add", scaled,
              Load("a2", (COLUMN,), dtype)),)),
    )  # fmt: skip
    shape = (rows, columns)
    tensors = _tensors(dtype, "argument", a0=shape, a1=(columns,), a2=(columns,))
    tensors += _tensors(dtype, "result", y0=shape)
    tensors += _tensors(
        dtype, "temporary", sum=(rows,), mean=(rows,), squares=(rows,), root=(rows,)
    )
    return Compute(tuple(tensors), stages)


def over_columns(rows: int, columns: int, dtype: str = "f32", monoid: Monoid = SUM) -> Compute:
    """A reduction along what lies together."""
    stage = Stage("all", (Axis("i", rows),), (Axis("j", columns),), (Store("y0", (ROW,)),),
                  (Load("a0", (ROW, COLUMN), dtype),), monoid)  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(rows, columns))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(rows,))), (stage,))


def over_rows(rows: int, columns: int, dtype: str = "f32", monoid: Monoid = SUM) -> Compute:
    """A reduction across what lies together."""
    stage = Stage("all", (Axis("j", columns),), (Axis("i", rows),), (Store("y0", (COLUMN,)),),
                  (Load("a0", (ROW, COLUMN), dtype),), monoid)  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(rows, columns))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(columns,))), (stage,))


def over_all(elements: int, dtype: str = "f32", monoid: Monoid = SUM) -> Compute:
    """A reduction to one element."""
    stage = Stage("all", (), (Axis("i", elements),), (Store("y0", ()),),
                  (Load("a0", (ROW,), dtype),), monoid)  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(elements,))
    return Compute((*tensors, *_tensors(dtype, "result", y0=())), (stage,))


def argmax(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """The largest of each row and its number, which a table has: a reduction of two results."""
    values = Load("a0", (ROW, COLUMN), dtype), Load("a1", (COLUMN,), "i32")
    stage = Stage("all", (Axis("i", rows),), (Axis("j", columns),),
                  (Store("y0", (ROW,)), Store("y1", (ROW,))), values, ARGMAX)  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(rows, columns))
    tensors += _tensors("i32", "argument", a1=(columns,))
    tensors += _tensors(dtype, "result", y0=(rows,)) + _tensors("i32", "result", y1=(rows,))
    return Compute(tuple(tensors), (stage,))


def transpose(rows: int, columns: int, dtype: str = "f32") -> Compute:
    stage = Stage("out", (Axis("i", columns), Axis("j", rows)), (), (Store("y0", (ROW, COLUMN)),),
                  (Load("a0", (COLUMN, ROW), dtype),))  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(rows, columns))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(columns, rows))), (stage,))


def heads(outer: int, inner: int, depth: int, dtype: str = "f32") -> Compute:
    """Two axes exchanged, a third one together."""
    axes = Axis("i", inner), Axis("j", outer), Axis("k", depth)
    stage = Stage(
        "out",
        axes,
        (),
        (Store("y0", (ROW, COLUMN, DEPTH)),),
        (Load("a0", (COLUMN, ROW, DEPTH), dtype),),
    )
    tensors = _tensors(dtype, "argument", a0=(outer, inner, depth))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(inner, outer, depth))), (stage,))


def biased(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """max(x + bias, x * bias): elementwise, with an operand that rows share."""
    x, bias = Load("a0", (ROW, COLUMN), dtype), Load("a1", (COLUMN,), dtype)
    value = _apply("maximum", _apply("add", x, bias), _apply("multiply", x, bias))
    stage = Stage(
        "out", (Axis("i", rows), Axis("j", columns)), (), (Store("y0", (ROW, COLUMN)),), (value,)
    )
    tensors = _tensors(dtype, "argument", a0=(rows, columns), a1=(columns,))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(rows, columns))), (stage,))


def centred_columns(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """What is left of each column without its sum: rows of the nest run along memory."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = Load("a0", (ROW, COLUMN), dtype)
    stages = (
        Stage("sum", (j,), (i,), (Store("sum", (COLUMN,)),), (x,), SUM),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),),
              (_apply("subtract", x, Load("sum", (COLUMN,), dtype)),)),
    )  # fmt: skip
    shape = (rows, columns)
    tensors = _tensors(dtype, "argument", a0=shape) + _tensors(dtype, "result", y0=shape)
    return Compute((*tensors, *_tensors(dtype, "temporary", sum=(columns,))), stages)


def rms_norm(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """Sum of squares, its root, and the scaled row: three stages."""
    i, j, share = Axis("i", rows), Axis("j", columns), Const(1 / columns, dtype)
    x = Load("a0", (ROW, COLUMN), dtype)
    mean = _apply("multiply", Load("squares", (ROW,), dtype), share)
    root = _apply("rsqrt", _apply("add", mean, Const(1e-5, dtype)))
    scaled = _apply("multiply", _apply("multiply", x, Load("root", (ROW,), dtype)),
                    Load("a1", (COLUMN,), dtype))  # fmt: skip
    stages = (
        Stage("squares", (i,), (j,), (Store("squares", (ROW,)),), (_apply("multiply", x, x),), SUM),
        Stage("root", (i,), (), (Store("root", (ROW,)),), (root,)),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),), (scaled,)),
    )
    shape = (rows, columns)
    tensors = _tensors(dtype, "argument", a0=shape, a1=(columns,))
    tensors += _tensors(dtype, "result", y0=shape)
    return Compute((*tensors, *_tensors(dtype, "temporary", squares=(rows,), root=(rows,))), stages)


def log_softmax(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """Largest, sum of exponentials, its logarithm, differences: four stages."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = Load("a0", (ROW, COLUMN), dtype)
    apart = _apply("subtract", x, Load("top", (ROW,), dtype))
    stages = (
        Stage("top", (i,), (j,), (Store("top", (ROW,)),), (x,), MAX),
        Stage("sum", (i,), (j,), (Store("sum", (ROW,)),), (_apply("exponential", apart),), SUM),
        Stage("log", (i,), (), (Store("log", (ROW,)),),
              (_apply("log", Load("sum", (ROW,), dtype)),)),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),),
              (_apply("subtract", apart, Load("log", (ROW,), dtype)),)),
    )  # fmt: skip
    shape = (rows, columns)
    tensors = _tensors(dtype, "argument", a0=shape) + _tensors(dtype, "result", y0=shape)
    tensors += _tensors(dtype, "temporary", top=(rows,), sum=(rows,), log=(rows,))
    return Compute(tuple(tensors), stages)


def gelu(rows: int, columns: int, dtype: str = "f32") -> Compute:
    """x times the share of normal numbers below it, of an operand and a bias that rows share."""
    x = _apply("add", Load("a0", (ROW, COLUMN), dtype), Load("a1", (COLUMN,), dtype))
    below = _apply("erf", _apply("multiply", x, Const(0.5**0.5, dtype)))
    share = _apply("multiply", Const(0.5, dtype), _apply("add", Const(1.0, dtype), below))
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), (),
                  (Store("y0", (ROW, COLUMN)),), (_apply("multiply", x, share),))  # fmt: skip
    tensors = _tensors(dtype, "argument", a0=(rows, columns), a1=(columns,))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(rows, columns))), (stage,))


def residual_relu(elements: int, dtype: str = "f32") -> Compute:
    """max(x + y, 0)."""
    total = _apply("add", Load("a0", (ROW,), dtype), Load("a1", (ROW,), dtype))
    value = _apply("maximum", total, Const(0.0, dtype))
    stage = Stage("out", (Axis("i", elements),), (), (Store("y0", (ROW,)),), (value,))
    tensors = _tensors(dtype, "argument", a0=(elements,), a1=(elements,))
    return Compute((*tensors, *_tensors(dtype, "result", y0=(elements,))), (stage,))


OF_ROWS: dict[str, Callable[..., Compute]] = {
    f.__name__: f
    for f in (softmax, layer_norm, over_columns, over_rows, argmax, transpose, biased,
              centred_columns, rms_norm, log_softmax, gelu)
}  # fmt: skip
"""By name: computes of `(rows, columns, dtype)`."""

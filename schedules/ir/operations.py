"""The table of elementwise operations: what each means, and how code for it is written.

A row is all that most operations need.  Cutting reads which operations kernels may have, computes
what an `Apply` may name and what stands for several others, the oracle the function and how errors
go through it, code generation the instruction and whether signs of zeros show, limits how long it
takes at least, and inputs which operands had better be above zero.  A row without an instruction,
a definition or a rule of the oracle's is one whose code, or whose rule, has a function of that
name: in `codegen/llvm/math/` and `hlo/oracle/`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Any, Literal

import numpy as np

from hlotune.schedules.ir.expr import Apply, Const, Expr

Kinds = Literal["exact", "step", "extreme", "smooth", "wave"]
ZeroSign = Literal["shown", "kept", "hidden"]
"""`kept`: a zero's sign shows at most as the sign of a zero; `hidden`: both zeros give the same."""
BOTH = ("stablehlo", "chlo")
FLOATS, INTEGERS, TRUTHS = "f", "i", "b"
"""Kinds of element types: floats, integers, and i1."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far a right kernel may be off, and what the errors of operands make of a result.

    `exact` moves numbers without rounding, `step` jumps between plateaus, `extreme` is one of two
    operands, `smooth` rounds to `ulps` of the result and `absolute` of 1, `wave` is of slope 1.
    """

    kind: Kinds
    ulps: float = 1.0
    absolute: float = 0.0
    faithful: bool = False
    """Whether the result is a neighbour of the exact one, so that exact ones stay exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One elementwise operation; `name` is StableHLO's without the dialect, and an `Apply`'s."""

    name: str
    operands: int
    types: str
    """Kinds of element types that it is computed on."""
    dialects: tuple[str, ...] = ("stablehlo",)
    kernels: bool = True
    """Whether kernels of ours may have it; else it stays with XLA."""
    definition: Callable[..., Expr] | None = None
    """What stands for it in computes, of its operands."""
    instruction: str = ""
    """LLVM's on floats."""
    intrinsic: str = ""
    """LLVM's on floats, without prefix and type."""
    on_integers: str = ""
    """LLVM's instruction on integers."""
    on_truths: str = ""
    """LLVM's instruction on i1."""
    numpy: Callable[..., Any] | None = None
    """What it means of floats."""
    error: Error | None = None
    """None where the oracle has a rule of its own."""
    whole: Callable[..., Any] | None = None
    """What it means of integers; NumPy's."""
    truths: Callable[..., Any] | None = None
    """What it means of i1, where that differs."""
    zero_at_zero: bool = False
    """Whether the value is 0 where the one operand is."""
    bounded: bool = False
    """Whether the value is finite wherever the operand is."""
    fold: Callable[..., float] | None = None
    """Its value at constants, where that is worth knowing."""
    positive: int | None = None
    """The operand that had better be above zero."""
    keeps_positive: bool = False
    """Whether the value is above zero where the operands are."""
    zero_sign: ZeroSign = "shown"
    """Whether the sign of an operand that is zero is seen in the result."""
    simple_operations: float = 1
    """How many simple operations, such as an addition, it takes at least."""

    @property
    def full_names(self) -> tuple[str, ...]:
        """The names with their dialects, as programs have them."""
        return tuple(f"{dialect}.{self.name}" for dialect in self.dialects)


def _binary(name: str, types: str, **facts: Any) -> Operation:
    return Operation(name=name, operands=2, types=types, **facts)


def _unary(name: str, types: str = FLOATS, **facts: Any) -> Operation:
    return Operation(name=name, operands=1, types=types, **facts)


def _function(
    name: str, ulps: float, numpy: Callable[..., Any] | None = None, **facts: Any
) -> Operation:
    """A smooth function of floats, whose code is written by hand."""
    return _unary(name, numpy=numpy, error=Error("smooth", ulps), **facts)


def _left_to_xla(name: str, operands: int = 1, types: str = "", **facts: Any) -> Operation:
    return Operation(name=name, operands=operands, types=types, kernels=False, **facts)


def _square(x: Expr) -> Expr:
    return Apply("multiply", (x, x), x.dtype)


def _arc_tangent(x: Expr) -> Expr:
    return Apply("atan2", (x, Const(1.0, x.dtype)), x.dtype)


def _arc_sine(x: Expr) -> Expr:
    return Apply("atan2", (x, _other_leg(x)), x.dtype)


def _arc_cosine(x: Expr) -> Expr:
    return Apply("atan2", (_other_leg(x), x), x.dtype)


def _other_leg(x: Expr) -> Expr:
    """sqrt((1 - x) (1 + x)): no square is subtracted, which would lose places near 1."""
    one = Const(1.0, x.dtype)
    parts = tuple(Apply(op, (one, x), x.dtype) for op in ("subtract", "add"))
    return Apply("sqrt", (Apply("multiply", parts, x.dtype),), x.dtype)


def _clamped(low: float, x: float, high: float) -> float:
    return min(max(x, low), high)


def _squared(x: Any) -> Any:
    return x * x


_EXACT, _STEP, _EXTREME, _WAVE = Error("exact"), Error("step"), Error("extreme"), Error("wave")
_CHLO = ("chlo",)

_ARITHMETIC = (
    _binary(
        "add", "fib", instruction="fadd", on_integers="add", on_truths="or", whole=np.add,
        truths=np.logical_or, fold=lambda a, b: a + b, keeps_positive=True, zero_sign="kept",
    ),
    _binary(
        "subtract", "fi", instruction="fsub", on_integers="sub", whole=np.subtract,
        fold=lambda a, b: a - b,
    ),
    _binary(
        "multiply", "fib", instruction="fmul", on_integers="mul", on_truths="and",
        whole=np.multiply, truths=np.logical_and, fold=lambda a, b: a * b, keeps_positive=True,
        zero_sign="kept",
    ),
    _binary(
        "divide", "fi", instruction="fdiv", fold=lambda a, b: a / b if b else nan, positive=1,
        simple_operations=4,
    ),
    _binary("remainder", "fi", positive=1, simple_operations=8),
    _binary("power", "fi", positive=0, simple_operations=16),
    _binary(
        "maximum", "fib", intrinsic="maximum", on_truths="or", numpy=np.maximum, error=_EXTREME,
        whole=np.maximum, truths=np.logical_or, fold=max, keeps_positive=True, zero_sign="kept",
    ),
    _binary(
        "minimum", "fib", intrinsic="minimum", on_truths="and", numpy=np.minimum, error=_EXTREME,
        whole=np.minimum, truths=np.logical_and, fold=min, zero_sign="kept",
    ),
    _binary("and", "ib", on_integers="and", on_truths="and", whole=np.bitwise_and),
    _binary("or", "ib", on_integers="or", on_truths="or", whole=np.bitwise_or),
    _binary("xor", "ib", on_integers="xor", on_truths="xor", whole=np.bitwise_xor),
    _unary("not", "ib", whole=np.invert),
    *(
        _binary(f"shift_{how}", "i")
        for how in ("left", "right_arithmetic", "right_logical")
    ),
    _unary("popcnt", "i", zero_at_zero=True),
    _unary("count_leading_zeros", "i"),
    _unary("negate", "fi", numpy=np.negative, error=_EXACT, zero_at_zero=True, zero_sign="kept"),
    _unary(
        "abs", "fi", intrinsic="fabs", numpy=np.abs, error=_EXACT, whole=np.abs, zero_at_zero=True,
        zero_sign="hidden",
    ),
    _unary(
        "sign", "fi", numpy=np.sign, error=_STEP, whole=np.sign, zero_at_zero=True,
        zero_sign="kept",
    ),
    Operation(name="clamp", operands=3, types="fi", fold=_clamped, zero_sign="kept"),
    Operation(name="select", operands=3, types="fib", zero_sign="kept"),
    _binary("compare", "fib", zero_sign="hidden"),
    _unary("convert", "fib", zero_at_zero=True, keeps_positive=True, zero_sign="kept"),
    _unary("bitcast_convert", "fi"),
    _unary("is_finite", zero_sign="hidden"),
    _unary(
        "square", dialects=_CHLO, definition=_square, numpy=_squared,
        error=Error("smooth", 1.0, faithful=True),
    ),
)  # fmt: skip
_FUNCTIONS = (
    _unary(
        "floor", intrinsic="floor", numpy=np.floor, error=_STEP, zero_at_zero=True,
        zero_sign="kept",
    ),
    _unary(
        "ceil", intrinsic="ceil", numpy=np.ceil, error=_STEP, zero_at_zero=True, zero_sign="kept",
    ),
    _unary(
        "round_nearest_even", intrinsic="roundeven", numpy=np.rint, error=_STEP, zero_at_zero=True,
        zero_sign="kept",
    ),
    _unary("round_nearest_afz", intrinsic="round", error=_STEP, zero_at_zero=True),
    _unary(
        "sqrt", intrinsic="sqrt", numpy=np.sqrt, error=Error("smooth", 1.0, faithful=True),
        zero_at_zero=True, positive=0, keeps_positive=True, zero_sign="kept", simple_operations=4,
    ),
    _function("rsqrt", 2.0, positive=0, keeps_positive=True, simple_operations=4),
    _function("cbrt", 4.0, np.cbrt, zero_at_zero=True, zero_sign="kept", simple_operations=10),
    _function("exponential", 2.0, np.exp, zero_sign="hidden", simple_operations=8),
    _function("exponential_minus_one", 4.0, np.expm1, zero_at_zero=True, simple_operations=10),
    _function("log", 2.0, np.log, positive=0, simple_operations=9),
    _function("log_plus_one", 4.0, np.log1p, zero_at_zero=True, simple_operations=10),
    _function("logistic", 4.0, bounded=True, zero_sign="hidden", simple_operations=10),
    _function(
        "tanh", 4.0, np.tanh, zero_at_zero=True, bounded=True,
        zero_sign="kept", simple_operations=12,
    ),
    _unary(
        "sine", numpy=np.sin, error=_WAVE, zero_at_zero=True, bounded=True,
        zero_sign="kept", simple_operations=10,
    ),
    _unary(
        "cosine", numpy=np.cos, error=_WAVE, bounded=True, zero_sign="hidden", simple_operations=10,
    ),
    _function("tan", 4.0, np.tan, dialects=BOTH, zero_at_zero=True, simple_operations=12),
    _function(
        "erf", 4.0, dialects=_CHLO, zero_at_zero=True, bounded=True,
        zero_sign="kept", simple_operations=12,
    ),
    _unary("erfc", dialects=_CHLO, bounded=True, simple_operations=14),
    _binary("atan2", FLOATS, simple_operations=12),
    *(
        _unary(
            name, dialects=_CHLO, definition=definition, numpy=numpy, error=Error("smooth", 4.0),
        )
        for name, definition, numpy in (
            ("atan", _arc_tangent, np.arctan), ("asin", _arc_sine, np.arcsin),
            ("acos", _arc_cosine, np.arccos),
        )
    ),
)  # fmt: skip
_LEFT_TO_XLA = (
    _left_to_xla("reduce_precision", types="f"),
    *(
        _left_to_xla(name, types="f", dialects=_CHLO, numpy=numpy, error=Error("smooth", ulps))
        for name, numpy, ulps in (
            ("sinh", np.sinh, 8.0), ("cosh", np.cosh, 8.0), ("asinh", np.arcsinh, 8.0),
            ("acosh", np.arccosh, 8.0), ("atanh", np.arctanh, 8.0), ("erf_inv", None, 8.0),
            ("bessel_i1e", None, 8.0),
        )
    ),
    *(
        _left_to_xla(name, types="f", dialects=_CHLO, error=Error("smooth", 8.0, 8.0))
        for name in ("lgamma", "digamma")
    ),
    *(_left_to_xla(name) for name in ("imag", "real")),
    _left_to_xla("complex", 2),
    *(
        _left_to_xla(name, count, dialects=_CHLO)
        for name, count in (
            ("conj", 1), ("is_inf", 1), ("is_neg_inf", 1), ("is_pos_inf", 1), ("next_after", 2),
            ("polygamma", 2), ("zeta", 2),
        )
    ),
)  # fmt: skip
OPERATIONS: dict[str, Operation] = {
    row.name: row for row in (*_ARITHMETIC, *_FUNCTIONS, *_LEFT_TO_XLA)
}
"""By name.  Those without kinds of types are known by name alone."""


_UNKNOWN = Operation(name="", operands=0, types="")


def row_of(op: str) -> Operation:
    """The row of what an `Apply` names; comparisons share one.  Of what has none, an empty row."""
    return OPERATIONS.get("compare" if op.startswith("compare_") else op, _UNKNOWN)


def named(holds: Callable[[Operation], bool]) -> frozenset[str]:
    """Names of the operations of which something holds."""
    return frozenset(row.name for row in OPERATIONS.values() if holds(row))

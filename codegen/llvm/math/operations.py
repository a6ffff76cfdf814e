"""Elementwise operations on values: which instructions or functions each is made of."""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math import integers
from hlotune.codegen.llvm.math.extremes import WHICH, extreme
from hlotune.codegen.llvm.math.functions import function
from hlotune.codegen.llvm.math.values import (
    HELD,
    Value,
    compare,
    convert,
    literal,
    magnitude,
    rounded,
    suffix,
    vector,
)
from hlotune.schedules.dtypes import is_float, is_unsigned
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.operations import row_of

BINARY_INTEGERS = {
    "divide": integers.divide,
    "remainder": integers.remainder,
    "power": integers.power,
    "shift_left": integers.shift_left,
    "shift_right_logical": integers.shift_right_logical,
    "shift_right_arithmetic": integers.shift_right_arithmetic,
}
UNARY_INTEGERS = {"popcnt": integers.ones, "count_leading_zeros": integers.leading_zeros}


def apply(f: Function, op: str, args: tuple[Value, ...], dtype: str) -> Value:
    """One elementwise operation on values of equal lanes.

    Raises UnsupportedKernel for one that has no code yet.
    """
    if op == "convert":
        return convert(f, args[0], dtype)
    if op == "bitcast_convert":
        kind = vector(HELD[dtype], args[0].lanes)
        return Value(f.op(f"bitcast {args[0].type} {args[0].name} to {kind}"), dtype, args[0].lanes)
    if op.startswith("compare_"):
        return compare(f, op[8:], args[0], args[1])
    if op == "select":
        p, a, b = args
        return Value(
            f.op(f"select {p.type} {p.name}, {a.type} {a.name}, {b.type} {b.name}"), dtype, a.lanes
        )
    if op == "clamp":
        low, x, high = args
        return apply(f, "minimum", (apply(f, "maximum", (low, x), dtype), high), dtype)
    if is_float(args[0].dtype):
        return rounded(f, _float(f, op, args, dtype))
    return _integers(f, op, args, dtype)


def _float(f: Function, op: str, args: tuple[Value, ...], dtype: str) -> Value:
    a, lanes, row = args[0], args[0].lanes, row_of(op)
    if row.instruction:
        name = f.op(f"{row.instruction} contract {a.type} {a.name}, {args[1].name}")
        return Value(name, dtype, lanes)
    if op == "negate":
        return Value(f.op(f"fneg {a.type} {a.name}"), dtype, lanes)
    if f.loses_nan and row.name in ("maximum", "minimum"):
        return _of_numbers(f, row.name, a, args[1], dtype)
    if row.intrinsic:
        kind = f"llvm.{row.intrinsic}.{suffix(HELD[a.dtype], lanes)}"
        loose = f.zeros_alike and row.intrinsic in WHICH
        found = extreme(f, row.intrinsic, a, args[1], dtype) if row.intrinsic in WHICH else None
        if found is not None:
            return found
        operands = [(x.type, x.name) for x in args]
        return Value(f.intrinsic(kind, a.type, *operands, flags="nsz" * loose), dtype, lanes)
    if op == "is_finite":
        size = apply(f, "abs", (a,), a.dtype)
        return compare(f, "LT", size, literal(float("inf"), a.dtype, lanes))
    if op == "sign":
        one = literal(1, a.dtype, lanes)
        kind = f"llvm.copysign.{suffix(HELD[a.dtype], lanes)}"
        signed = f.intrinsic(kind, a.type, (a.type, one.name), (a.type, a.name))
        zero = f.op(f"fcmp ueq {a.type} {a.name}, {literal(0, a.dtype, lanes).name}")
        return Value(
            f.op(f"select {vector('i1', lanes)} {zero}, {a.type} {a.name}, {a.type} {signed}"),
            dtype,
            lanes,
        )
    return function(f, op, args, dtype)


def _of_numbers(f: Function, op: str, old: Value, new: Value, dtype: str) -> Value:
    """The larger or smaller of two, the old one where the new one is no number: one instruction."""
    how = "ogt" if op == "maximum" else "olt"
    ahead = f.op(f"fcmp {how} {old.type} {new.name}, {old.name}")
    mask = vector("i1", old.lanes)
    name = f.op(f"select {mask} {ahead}, {old.type} {new.name}, {old.type} {old.name}")
    return Value(name, dtype, old.lanes)


def _integers(f: Function, op: str, args: tuple[Value, ...], dtype: str) -> Value:
    a, lanes = args[0], args[0].lanes
    instruction = row_of(op).on_truths if a.dtype == "i1" else row_of(op).on_integers
    if instruction:
        return Value(f.op(f"{instruction} {a.type} {a.name}, {args[1].name}"), dtype, lanes)
    if op in BINARY_INTEGERS:
        return BINARY_INTEGERS[op](f, a, args[1])
    if op in UNARY_INTEGERS and a.dtype != "i1":
        return UNARY_INTEGERS[op](f, a)
    if op in ("maximum", "minimum"):
        kind = f"llvm.{'u' if is_unsigned(a.dtype) else 's'}{op[:3]}.{suffix(HELD[a.dtype], lanes)}"
        return Value(
            f.intrinsic(kind, a.type, (a.type, a.name), (a.type, args[1].name)), dtype, lanes
        )
    if op == "negate":
        return Value(
            f.op(f"sub {a.type} {literal(0, a.dtype, lanes).name}, {a.name}"), dtype, lanes
        )
    if op == "not":
        return Value(
            f.op(f"xor {a.type} {a.name}, {literal(-1, a.dtype, lanes).name}"), dtype, lanes
        )
    if op == "abs":
        return magnitude(f, a)
    if op == "sign":
        low = a
        if not is_unsigned(a.dtype):
            low = apply(f, "maximum", (a, literal(-1, dtype, lanes)), dtype)
        return apply(f, "minimum", (low, literal(1, dtype, lanes)), dtype)
    raise UnsupportedKernel(
        f"no code for {op} on {a.dtype} yet: the kernel stays with the default compiler"
    )

"""Integer operations that LLVM leaves undefined for some operands, or has no instruction for.

StableHLO's shifts by all bits and more leave nothing but signs.  Its divide rounds towards zero.
Nothing traps: x / 0 has all bits set, x % 0 is x, and the least value over -1 is itself.
"""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, literal, suffix, vector
from hlotune.schedules.dtypes import is_unsigned


def divide(f: Function, a: Value, b: Value) -> Value:
    quotient, zero = _divided(f, "div", a, b)
    return _select(f, zero, literal(-1, a.dtype, a.lanes), quotient)


def remainder(f: Function, a: Value, b: Value) -> Value:
    rest, zero = _divided(f, "rem", a, b)
    return _select(f, zero, a, rest)


def _divided(f: Function, op: str, a: Value, b: Value) -> tuple[Value, Value]:
    """By 1 where the processor would trap, and where b is zero."""
    one, zero = literal(1, a.dtype, a.lanes), _equal(f, b, 0)
    if is_unsigned(a.dtype):
        safe = _select(f, zero, one, b)
        return _binary(f, f"u{op}", a, safe), zero
    least = -(1 << _bits(a.dtype) - 1)
    overflow = _both(f, _equal(f, a, least), _equal(f, b, -1))
    safe = _select(f, overflow, one, _select(f, zero, one, b))
    return _binary(f, f"s{op}", a, safe), zero


def power(f: Function, a: Value, b: Value) -> Value:
    """By squaring, wrapping; a negative exponent leaves what integers can say of 1 / a^n."""
    one = literal(1, a.dtype, a.lanes)
    result, square = one, a
    for k in range(_bits(a.dtype)):
        bit = _binary(f, "and", b, literal(1 << k, a.dtype, a.lanes))
        factor = _select(f, _equal(f, bit, 0), one, square)
        result, square = _binary(f, "mul", result, factor), _binary(f, "mul", square, square)
    if is_unsigned(a.dtype):
        return result
    zero, minus = literal(0, a.dtype, a.lanes), literal(-1, a.dtype, a.lanes)
    odd = _equal(f, _binary(f, "and", b, one), 1)
    inverse = _select(f, _equal(f, a, -1), _select(f, odd, minus, one), zero)
    inverse = _select(f, _equal(f, a, 1), one, inverse)
    name = f.op(f"icmp slt {b.type} {b.name}, {zero.name}")
    return _select(f, Value(name, "i1", a.lanes), inverse, result)


def shift_left(f: Function, a: Value, b: Value) -> Value:
    return _shifted(f, "shl", a, b)


def shift_right_logical(f: Function, a: Value, b: Value) -> Value:
    return _shifted(f, "lshr", a, b)


def _shifted(f: Function, op: str, a: Value, b: Value) -> Value:
    """By no more than all bits, which leaves nothing; a negative number of bits is a large one."""
    inside, safe = _places(f, a, b, 0)
    return _select(f, inside, _binary(f, op, a, safe), literal(0, a.dtype, a.lanes))


def shift_right_arithmetic(f: Function, a: Value, b: Value) -> Value:
    """By all bits and more, the sign is left everywhere."""
    _, safe = _places(f, a, b, _bits(a.dtype) - 1)
    return _binary(f, "ashr", a, safe)


def _places(f: Function, a: Value, b: Value, otherwise: int) -> tuple[Value, Value]:
    """Whether a shift keeps any bit, and by how many it is; `otherwise` where it keeps none."""
    bits = literal(_bits(a.dtype), a.dtype, a.lanes)
    inside = Value(f.op(f"icmp ult {b.type} {b.name}, {bits.name}"), "i1", a.lanes)
    return inside, _select(f, inside, b, literal(otherwise, a.dtype, a.lanes))


def ones(f: Function, a: Value) -> Value:
    kind = f"llvm.ctpop.{suffix(HELD[a.dtype], a.lanes)}"
    return Value(f.intrinsic(kind, a.type, (a.type, a.name)), a.dtype, a.lanes)


def leading_zeros(f: Function, a: Value) -> Value:
    kind = f"llvm.ctlz.{suffix(HELD[a.dtype], a.lanes)}"
    return Value(f.intrinsic(kind, a.type, (a.type, a.name), ("i1", "false")), a.dtype, a.lanes)


def _bits(dtype: str) -> int:
    return int(HELD[dtype][1:])


def _binary(f: Function, op: str, a: Value, b: Value) -> Value:
    return Value(f.op(f"{op} {a.type} {a.name}, {b.name}"), a.dtype, a.lanes)


def _both(f: Function, a: Value, b: Value) -> Value:
    return _binary(f, "and", a, b)


def _equal(f: Function, a: Value, number: int) -> Value:
    name = f.op(f"icmp eq {a.type} {a.name}, {literal(number, a.dtype, a.lanes).name}")
    return Value(name, "i1", a.lanes)


def _select(f: Function, condition: Value, a: Value, b: Value) -> Value:
    mask = vector("i1", a.lanes)
    text = f"select {mask} {condition.name}, {a.type} {a.name}, {b.type} {b.name}"
    return Value(f.op(text), a.dtype, a.lanes)

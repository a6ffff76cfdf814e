"""The larger or smaller of two vectors of floats, as IEEE 754 has it, in few instructions.

No number comes of what is none, and of two zeros the positive one is the larger.  One instruction
of AVX-512 knows that of zeros.  Others of x86 give their second operand where they cannot decide,
so that both orders together have both zeros and what is no number, and the bits of either say all:

    smaller(a, b) = min(a, b) | min(b, a)       larger(a, b) = -smaller(-a, -b)

A processor that takes subnormal values for zero cannot decide between two of these either, and
gives the bits of both, a subnormal value again.
"""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, vector

FEATURE = "avx512dq"
GIVE_SECOND = {"sse2", "avx"}
"""Features of processors whose minimum is the second operand, unless the first one is smaller."""
NAMED = ("%", "\0")
"""What names of values begin with in functions and, as blanks, in templates; constants do not."""
SHORT = {"float": "ps", "double": "pd"}
WHICH = {"minimum": 4, "maximum": 5}
"""What `vrange` takes for the smaller and the larger one, with the sign of what it found."""


def extreme(f: Function, op: str, a: Value, b: Value, dtype: str) -> Value | None:
    """The larger or smaller of two vectors; None where LLVM's code is as short, as with constants.

    What LLVM makes of `llvm.maximum` takes five instructions, and six with masks.
    """
    held, features = HELD[a.dtype], f.module.features
    if held not in SHORT or a.lanes == 1 or any(x.name[:1] not in NAMED for x in (a, b)):
        return None
    if FEATURE not in features and GIVE_SECOND & set(features):
        return _in_both_orders(f, op, a, b, dtype)
    whole = FEATURE in features and a.lanes == {"float": 16, "double": 8}[held]
    return _by_range(f, op, a, b, dtype) if whole and not f.zeros_alike else None


def _by_range(f: Function, op: str, a: Value, b: Value, dtype: str) -> Value:
    """Three instructions."""
    lanes, held = a.lanes, HELD[a.dtype]
    found = f.intrinsic(
        f"llvm.x86.avx512.mask.range.{SHORT[held]}.512", a.type, (a.type, a.name),
        (b.type, b.name), ("i32", str(WHICH[op])), (a.type, "zeroinitializer"),
        (f"i{lanes}", "-1"), ("i32", "4"),
    )  # fmt: skip
    lost = f.op(f"fcmp uno {a.type} {a.name}, {b.name}")
    both = f.op(f"fadd {a.type} {a.name}, {b.name}")
    mask = vector("i1", lanes)
    return Value(f.op(f"select {mask} {lost}, {a.type} {both}, {a.type} {found}"), dtype, lanes)


def _in_both_orders(f: Function, op: str, a: Value, b: Value, dtype: str) -> Value:
    """Three instructions, of which one has four units; a larger one whose zeros matter has negated
    operands, which LLVM takes out between one and the next."""
    turned = op == "maximum" and not f.zeros_alike
    how = "ogt" if op == "maximum" and not turned else "olt"
    bits = vector({"float": "i32", "double": "i64"}[HELD[a.dtype]], a.lanes)
    x, y = (f.op(f"fneg {v.type} {v.name}") if turned else v.name for v in (a, b))
    found = []
    for first, second in ((x, y), (y, x)):
        ahead = f.op(f"fcmp {how} {a.type} {first}, {second}")
        mask = vector("i1", a.lanes)
        one = f.op(f"select {mask} {ahead}, {a.type} {first}, {a.type} {second}")
        found.append(f.op(f"bitcast {a.type} {one} to {bits}"))
    both = f.op(f"or {bits} {found[0]}, {found[1]}")
    name = f.op(f"bitcast {bits} {both} to {a.type}")
    return Value(f.op(f"fneg {a.type} {name}") if turned else name, dtype, a.lanes)

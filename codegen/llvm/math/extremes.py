"""The larger or smaller of two floats, where one instruction knows which zero is the larger one."""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, vector

FEATURE = "avx512dq"
SHORT = {"float": "ps", "double": "pd"}
WHICH = {"minimum": 4, "maximum": 5}
"""What `vrange` takes for the smaller and the larger one, with the sign of what it found."""


def knows_zeros(f: Function, a: Value, b: Value) -> bool:
    """Whether there is such an instruction for two vectors, neither of which is a constant: LLVM
    has shorter code for these."""
    held = HELD[a.dtype]
    whole = held in SHORT and a.lanes == {"float": 16, "double": 8}[held]
    return whole and FEATURE in f.module.features and all(x.name[:1] == "%" for x in (a, b))


def extreme(f: Function, op: str, a: Value, b: Value, dtype: str) -> Value:
    """The larger or smaller of two vectors, no number where one of them is none.

    Three instructions; what LLVM makes of `llvm.maximum` takes six.
    """
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

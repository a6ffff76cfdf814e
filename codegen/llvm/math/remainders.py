"""The remainder of floats, which processors have no instruction for.

The C library takes one number at a time, 15 to 20 ns each, and is left with what is rare: a
quotient of 2^22 or more (f64: 2^51).
"""

from functools import cache
from pathlib import Path
from string import Template

from hlotune.codegen.llvm.math.values import suffix
from hlotune.codegen.llvm.math.vector_builder import WHOLE, WIDTH, Lanes


def remainder(t: Lanes, x: str, y: str) -> str:
    """x - n * y for the quotient n rounded towards zero; exact, with the sign of x."""
    if t.lanes == 1 or not t.fuses:
        return t.f.op(f"frem {t.type} {x}, {y}")
    if t.lanes <= WHOLE // WIDTH[t.element]:
        return _called(t, x, y)
    return t.by_whole_vectors(_called, x, y)


def _called(t: Lanes, x: str, y: str) -> str:
    kind = suffix(t.element, t.lanes)
    name = f"remainder.{kind}"
    for intrinsic, operands in (("fabs", 1), ("copysign", 2), ("fma", 3)):
        types = ", ".join([t.type] * operands)
        full = f"llvm.{intrinsic}.{kind}"
        t.f.module.declare(full, f"declare {t.type} @{full}({types})")
    every = f"llvm.vector.reduce.and.v{t.lanes}i1"
    t.f.module.declare(every, f"declare i1 @{every}(<{t.lanes} x i1>)")
    large, magic = t.number(2.0 ** (t.mantissa - 1)), t.number(1.5 * 2.0**t.mantissa)
    t.f.module.declare(name, _text().substitute(
        V=t.type, NAME=name, SUFFIX=kind, LANES=t.lanes, LARGE=large, MAGIC=magic
    ))  # fmt: skip
    return t.f.op(f"call {t.type} @{name}({t.type} {x}, {t.type} {y})")


@cache
def _text() -> Template:
    return Template(Path(__file__).with_name("remainder.ll").read_text(encoding="utf-8"))

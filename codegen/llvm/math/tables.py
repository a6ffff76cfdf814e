"""Functions of floats by tables of sixteen intervals, which a vector of sixteen lanes looks up.

On targets with AVX-512 a lookup of sixteen lanes in a table of sixteen numbers is one instruction.
Other numbers of lanes read the same table from memory, so that they compute the same bits.
"""

import struct
from collections.abc import Sequence

from hlotune.codegen.llvm.math.values import suffix, vector
from hlotune.codegen.llvm.math.vector_builder import Lanes

ENTRIES = 16
FEATURE = "avx512f"


def has_lookups(t: Lanes) -> bool:
    return t.element == "float" and FEATURE in t.f.module.features


def looked_up(t: Lanes, name: str, columns: Sequence[Sequence[float]], index: str) -> list[str]:
    """The entry of each column at an integer index, of which the low four bits count.

    Args:
        name: of the table in the module.
        columns: of `ENTRIES` numbers each.
        index: integers of as many lanes.
    """
    if t.lanes == ENTRIES:
        return [_permuted(t, column, index) for column in columns]
    at = t.on_bits("mul", t.on_bits("and", index, ENTRIES - 1), len(columns))
    t.f.module.declare(f"@{name}", _global(name, columns))
    return [_loaded(t, f"@{name}", t.on_bits("add", at, k)) for k in range(len(columns))]


def _permuted(t: Lanes, column: Sequence[float], index: str) -> str:
    numbers = ", ".join(f"float {_text(x)}" for x in column)
    operands = (t.type, f"<{numbers}>"), (t.integers, index)
    return t.f.intrinsic("llvm.x86.avx512.permvar.sf.512", t.type, *operands)


def _loaded(t: Lanes, table: str, at: str) -> str:
    pointers = t.f.op(f"getelementptr float, ptr {table}, {t.integers} {at}")
    if t.lanes == 1:
        return t.f.op(f"load float, ptr {pointers}")
    name = f"llvm.masked.gather.{suffix('float', t.lanes)}.v{t.lanes}p0"
    mask = (vector("i1", t.lanes), "splat (i1 true)")
    where = (vector("ptr", t.lanes), pointers)
    return t.f.intrinsic(name, t.type, where, ("i32", "4"), mask, (t.type, "zeroinitializer"))


def _global(name: str, columns: Sequence[Sequence[float]]) -> str:
    numbers = [column[k] for k in range(ENTRIES) for column in columns]
    values = ", ".join(f"float {_text(x)}" for x in numbers)
    return f"@{name} = internal constant [{len(numbers)} x float] [{values}], align 64"


def _text(number: float) -> str:
    return f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}"

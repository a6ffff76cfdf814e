"""Functions of floats by tables of 32, sixteen or eight numbers, which vectors look up at once.

On targets with AVX-512 a lookup of sixteen lanes in a table of sixteen numbers is one instruction,
as is one in a table of 32, which two registers hold; on those with AVX2 it is one of eight lanes in
a table of eight.  Vectors of other lengths are taken in parts or filled up, and a number alone
reads the same table from memory, so that all compute the same bits.
"""

import struct
from collections.abc import Collection, Sequence

from hlotune.codegen.llvm.math.vector_builder import WIDTH, Lanes

ENTRIES, LONG_ENTRIES = 16, 32
FEATURE = "avx512f"
SHORT_ENTRIES = 8
SHORT_FEATURE = "avx2"
PERMUTED = {
    ENTRIES: "llvm.x86.avx512.permvar.sf.512",
    SHORT_ENTRIES: "llvm.x86.avx2.permps",
}
"""What looks up as many lanes as a table has entries."""
PERMUTED_OF_TWO = "llvm.x86.avx512.vpermi2var.ps.512"
"""What looks sixteen lanes up in a table of twice as many entries."""


def has_lookups(t: Lanes) -> bool:
    return t.element == "float" and FEATURE in t.f.module.features


def has_short_lookups(t: Lanes) -> bool:
    """Whether lookups are of eight lanes in tables of eight numbers."""
    return t.element == "float" and looks_up_eight(t.f.module.features)


def looks_up_eight(features: Collection[str]) -> bool:
    """Whether a target with these features has lookups of eight lanes, and none of sixteen."""
    return SHORT_FEATURE in features and FEATURE not in features


def looked_up(t: Lanes, name: str, columns: Sequence[Sequence[float]], index: str) -> list[str]:
    """The entry of each column at an integer index, of which the low bits count.

    Args:
        name: of the table in the module.
        columns: of `ENTRIES`, `LONG_ENTRIES` or `SHORT_ENTRIES` numbers each.
        index: integers of as many lanes.
    """
    if t.lanes > 1:
        return [_permuted(t, column, index) for column in columns]
    at = t.on_bits("mul", t.on_bits("and", index, len(columns[0]) - 1), len(columns))
    t.f.module.declare(f"@{name}", _global(name, columns))
    return [_loaded(t, f"@{name}", t.on_bits("add", at, k)) for k in range(len(columns))]


def _permuted(t: Lanes, column: Sequence[float], index: str) -> str:
    lanes = min(len(column), ENTRIES)
    first, *rest = (_constant(column[k : k + lanes]) for k in range(0, len(column), lanes))

    def permuted(whole: Lanes, part: str) -> str:
        name = PERMUTED_OF_TWO if rest else PERMUTED[len(column)]
        places, tables = (whole.integers, whole.bits(part)), [(whole.type, x) for x in rest]
        return t.f.intrinsic(name, whole.type, (whole.type, first), places, *tables)

    return t.by_whole_vectors(permuted, t.of_bits(index), size=lanes * WIDTH[t.element])


def _constant(numbers: Sequence[float]) -> str:
    return f"<{', '.join(f'float {_text(x)}' for x in numbers)}>"


def _loaded(t: Lanes, table: str, at: str) -> str:
    pointer = t.f.op(f"getelementptr float, ptr {table}, {t.integers} {at}")
    return t.f.op(f"load float, ptr {pointer}")


def _global(name: str, columns: Sequence[Sequence[float]]) -> str:
    numbers = [number for row in zip(*columns, strict=True) for number in row]
    values = ", ".join(f"float {_text(x)}" for x in numbers)
    return f"@{name} = internal constant [{len(numbers)} x float] [{values}], align 64"


def _text(number: float) -> str:
    return f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}"

"""Instructions that add the products of groups of neighbours to a sum, lane by lane."""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import Value, vector
from hlotune.schedules.dtypes import GROUPS
from hlotune.schedules.errors import BuildError

INTRINSIC = {
    ("bf16x2", "bf16x2"): ("llvm.x86.avx512bf16.dpbf16ps", "bfloat"),
    ("ui8x4", "i8x4"): ("llvm.x86.avx512.vpdpbusd", "i8"),
}
"""By the types of the groups: name without its width, and LLVM's name of a group's elements.

The first rounds after each product, flushes what is subnormal, and takes no exception; the second
is exact, and wraps.
"""


def dot(f: Function, a: Value, b: Value, total: Value) -> Value:
    """`total` and the sum of the products of two groups.

    Raises BuildError for types or widths of vectors that no instruction has.
    """
    lanes = total.lanes
    if (a.dtype, b.dtype) not in INTRINSIC or lanes not in (4, 8, 16):
        raise BuildError(
            f"expected vectors of 4, 8 or 16 lanes with a dot instruction, got {lanes} of "
            f"{a.dtype} and {b.dtype}; vectorize the stage by whole vectors, or use `direct`"
        )
    name, element = INTRINSIC[a.dtype, b.dtype]
    groups = vector(element, lanes * GROUPS[a.dtype][1])
    casts = [(groups, f.once(f"bitcast {x.type} {x.name} to {groups}")) for x in (a, b)]
    result = f.intrinsic(f"{name}.{32 * lanes}", total.type, (total.type, total.name), *casts)
    return Value(result, total.dtype, lanes)

"""The types and operations that block kernels made of a program's expressions may have."""

from collections.abc import Sequence

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Tensor
from hlotune.schedules.ir.expr import Apply, Expr
from hlotune.schedules.patterns.inlined import LEFT_ALONE

TYPES = ("f32", "bf16", "f16", "i32", "i8", "ui8", "i1")
"""Element types that tensors and values of such kernels may have."""
OPERATIONS = frozenset((
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "and", "or", "xor",
    "not", "negate", "abs", "sign", "clamp", "select", "convert", "is_finite", "floor", "ceil",
    "sqrt", "rsqrt", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic",
    "tanh", "sine", "cosine", "erf", "erfc",
    *(f"compare_{how}" for how in ("EQ", "NE", "LT", "LE", "GT", "GE")),
))  # fmt: skip
"""Operations that such kernels may have."""
FLOATS_ALONE = ("divide", "power", "sign")
"""Those of `OPERATIONS` that such kernels have for floats, but not for integers."""
MOST_ELEMENTS = 1 << 31
"""Tensors must have fewer elements than this, so that signed 32-bit offsets reach them all."""


def require_known(tensors: Sequence[Tensor], values: Sequence[Expr]) -> None:
    """Raises UnsupportedKernel where tensors or values are of other types or operations."""
    for t in tensors:
        if t.dtype not in TYPES or t.elements >= MOST_ELEMENTS:
            raise UnsupportedKernel(
                f"expected tensors of {', '.join(TYPES)} with fewer than {MOST_ELEMENTS} elements, "
                f"got {'x'.join(map(str, t.shape))} of {t.dtype}: {LEFT_ALONE}"
            )
    seen, waiting = set[int](), list(values)
    while waiting:
        e = waiting.pop()
        if not isinstance(e, Apply) or id(e) in seen:
            continue
        seen.add(id(e))
        waiting.extend(e.args)
        narrow = e.dtype in ("i8", "ui8")  # values of these are computed in more bits
        whole = narrow or (e.op in FLOATS_ALONE and not is_float(e.dtype))
        if e.op not in OPERATIONS or e.dtype not in TYPES or whole:
            raise UnsupportedKernel(
                f"expected operations that kernels of blocks have, got {e.op} of {e.dtype}: "
                f"{LEFT_ALONE}"
            )

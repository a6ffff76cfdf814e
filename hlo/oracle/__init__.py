"""What a program means, in NumPy: the independent reference that tuned kernels are held against.

`evaluate` gives whole results, `Oracle` boxes of them; both come with a first-order bound of the
rounding error that a legitimate evaluation may show, and `compare` holds a kernel's output
against that.  XLA is never asked.

How values are taken.  Floating values are f64.  A value of type bf16 or f16 is rounded to its
type by every operation, and so is what a `convert` makes; other f32 values keep their f64 digits,
so that f32 kernels are measured against the true value.  Every operation adds `eps * |value|` of
its own type to the bound unless its result is provably exact: operands without error and a result
that the type holds.  A compiler that skips the rounding between two bf16 operations, contracts to
FMA or sums in another order therefore stays inside the bound, and where all of a program's values
are exact (small integers) the bound shrinks to nothing and `Reference.exact` says so.

Contractions of bf16 and f16 accumulate in f32.  Inside `rounding` the bound allows for f32 operands
that a device rounds to tf32, of products whose precision the program leaves to the device.  A
reduce whose region adds in a narrow type is summed exactly and rounded once, but its bound lets a
kernel round every partial sum, as the program says and XLA does.  Subnormal values may be flushed
to zero; inside `flushing` they are.

The bound is a worst case to first order: it grows with every contraction on the way, and after
several of them exceeds the values.  It is for kernels; whole programs are better compared by
`rms_error`, the tuned one's with the default's.
"""

from hlotune.hlo.oracle.bounded import flushing, rounding
from hlotune.hlo.oracle.comparison import Mismatch, Reference, compare, rms_error
from hlotune.hlo.oracle.coverage import Gap, gaps
from hlotune.hlo.oracle.evaluation import Oracle, OracleInTiles, evaluate
from hlotune.hlo.oracle.request import OutOfTime

__all__ = [
    "Gap",
    "Mismatch",
    "Oracle",
    "OracleInTiles",
    "OutOfTime",
    "Reference",
    "compare",
    "evaluate",
    "flushing",
    "gaps",
    "rms_error",
    "rounding",
]

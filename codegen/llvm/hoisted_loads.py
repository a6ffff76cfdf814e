"""Numbers that all lanes share, loaded ahead of the loops that they do not vary in.

LLVM leaves such loads where they are, as it does not know that the stores of a stage go elsewhere,
and with them what is made of them alone, such as the reciprocal of a row's sum.
"""

from functools import partial

from hlotune.codegen.llvm.access_forms import Constants, Form, constants_of, form_of
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.loads import At, Found, Source
from hlotune.codegen.llvm.math.values import STORED, Value, from_memory
from hlotune.codegen.llvm.points import Point
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import StageNest


def may_be_hoisted(s: StageNest, x: Load) -> bool:
    """Whether a stage has registers to spare, as tiles of products do not, and never writes there.

    Groups of neighbours, and loads that are real only beside another, have ways of their own.
    """
    spare = s.stage.combine is None or s.reduces_lanes
    return spare and x.tensor not in s.stage.stored and x.along is None and x.beside is None


def hoisted(f: Function, place: Place, x: Load, point: Point, fresh: Source) -> Source:
    """A load ahead of loops where it is one number, known to lie inside; else as `fresh` has it."""
    if place.blocks or place.is_guard or x.dtype != place.dtype or any(n > 1 for n in x.divisors):
        return fresh
    form = form_of(f, place, x, point)

    def found(at: At) -> Found:
        constants = constants_of(x.index, at)
        if form.lanes > 1 or form.outside(constants) != [] or _depth(f, form, constants) == f.depth:
            return fresh(at)
        return Found(1, partial(_read, f, form, constants))

    return found


def _depth(f: Function, form: Form, constants: Constants) -> int:
    return max(f.floor, form.hoistable_pointer(constants)[1])


def _read(f: Function, form: Form, constants: Constants) -> Value:
    pointer, _ = form.hoistable_pointer(constants)
    dtype = form.place.dtype
    load = f"load {STORED[dtype]}, ptr {pointer}, align {BYTES[dtype]}"
    name = f.hoisted(_depth(f, form, constants), load)
    return from_memory(f, name, dtype, 1)

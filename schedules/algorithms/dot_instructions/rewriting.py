"""Dots: sums of products over groups of neighbours, for processors with an instruction for them.

    contract   sum over r of a[m, r] * b[r, n]
    becomes    sum over g of dot(a[m, wg .. wg + w], b[wg .. wg + w, n])

for w elements of the reduction at once.  An operand whose groups lie together is seen as an array
of groups; the others are loaded element by element, and packing them puts groups together.  Where
the axis is no multiple of w, zeros stand behind it.

For i8 there is only an instruction that takes one operand without sign.  Flipping the sign bit adds
128 to each of its elements; 128 times the sum of the other operand's, which `offset` has, is taken
off again.  Integers wrap, so this is exact.
"""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, map_all_loads
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.patterns.contraction import Contraction, contraction
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.units import DOT_INSTRUCTIONS, DotInstruction

DOTS, OFFSET = "dots", "offset"
SIGNS = Const(0x80808080 - (1 << 32), "ui8x4")
GATHERED = 16
"""How much longer sums take whose terms lie together, for their lanes then lie apart."""


@dataclass(frozen=True)
class Grouping:
    """How the sum of a contraction is taken in groups."""

    contraction: Contraction
    instruction: DotInstruction
    operands: tuple[Load, Load]
    axis: Axis
    """The reduction whose neighbours are grouped."""
    summed: int | None
    """The operand with signs, where the other has none."""


def dots(compute: Compute) -> Compute:
    """The algorithm.  Raises ScheduleError for a compute without such a sum."""
    found = grouping(compute)
    if found is None:
        raise ScheduleError(
            f"dots: expected a sum of products of bf16 in f32 or of i8 in i32, over an axis that "
            f"both operands have plain, got\n{compute}\nuse `direct`"
        )
    return in_groups(compute, found)


def has_instruction(target: CpuTarget, group: Grouping) -> bool:
    return group.instruction.features.get(target.vector_bytes) in target.features


def grouping(compute: Compute, *, signed: bool = False) -> Grouping | None:
    """None where a kernel has no sum that can be taken in groups.

    With `signed` by an instruction that takes bytes of both operands with their signs.
    """
    try:
        c = contraction(compute)
    except UnsupportedKernel:
        return None
    operands = _factors(c.core.values[0])
    instruction = DOT_INSTRUCTIONS.get(operands[0].dtype) if operands else None
    if operands is None or instruction is None or instruction.total != c.dtype:
        return None
    axes = [a for a in c.core.reduce if _is_plain(compute, a, operands, instruction.width)]
    if not axes:
        return None
    axis = max(axes, key=lambda a: _worth(compute, a, operands, instruction.width))
    summed = None
    if instruction.group == "i8x4" and not signed:
        summed = _summed(compute, c.core, operands, axis)
        if summed is None:
            return None
    return Grouping(c, instruction, operands, axis, summed)


def _factors(value: Expr) -> tuple[Load, Load] | None:
    """The two loads of one type whose product, taken in another, is summed."""
    if not isinstance(value, Apply) or value.op != "multiply":
        return None
    found = [a.args[0] for a in value.args if isinstance(a, Apply) and a.op == "convert"]
    plain = [x for x in found if isinstance(x, Load) and x.outside == 0]
    if len(plain) != 2 or plain[0].dtype != plain[1].dtype:
        return None
    return plain[0], plain[1]


def _is_plain(compute: Compute, axis: Axis, operands: tuple[Load, ...], width: int) -> bool:
    """Whether each operand goes through one dimension along an axis, and through no other."""
    if axis.extent < width:
        return False
    for x in operands:
        places = [d for d, e in enumerate(x.index) if axis.name in e.coefficients]
        if len(places) != 1 or x.index[places[0]] != Affine.axis(axis.name):
            return False
        extent = compute.tensor(x.tensor).shape[places[0]]
        if x.divisor(places[0]) != 1 or (axis.extent % width and extent != axis.extent):
            return False
    return True


def _worth(
    compute: Compute, axis: Axis, operands: tuple[Load, ...], width: int
) -> tuple[float, int, int]:
    """Few zeros behind the axis, then operands whose groups lie together, then a long axis."""
    share = axis.extent / (-(-axis.extent // width) * width)
    return share, sum(_lies_together(compute, x, axis, width) for x in operands), axis.extent


def _dimension(x: Load, axis: Axis) -> int:
    return next(d for d, e in enumerate(x.index) if axis.name in e.coefficients)


def _lies_together(compute: Compute, x: Load, axis: Axis, width: int) -> bool:
    """Whether a tensor can be seen as an array of groups: nobody else reads it otherwise."""
    tensor, d = compute.tensor(x.tensor), _dimension(x, axis)
    alone = sum(y.tensor == x.tensor for s in compute.stages for y in s.loads) == 1
    whole = d == len(tensor.shape) - 1 and tensor.shape[d] % width == 0
    return whole and alone and tensor.role in ("argument", "constant")


def _summed(compute: Compute, core: Stage, operands: tuple[Load, Load], axis: Axis) -> int | None:
    """The operand whose sums are least work: they hang on a part of the parallel axes only."""

    def fits(x: Load) -> bool:
        parallel = [a.name in x.axes for a in core.parallel]
        whole = all(r.name in x.axes for r in core.reduce)
        alone = x.beside is None  # its sums would hang on the other operand's axes as well
        return (
            any(parallel)
            and not all(parallel)
            and whole
            and alone
            and not guarded(compute, core, x)
        )

    def work(k: int) -> int:
        """The work of grouping an operand in each call; of constants too, where they are not packed
        as they are loaded.
        """
        across = operands[k].index[-1].coefficients.keys() & {axis.name}
        return compute.tensor(operands[k].tensor).elements * (GATHERED if across else 1)

    return next((k for k in sorted((0, 1), key=work) if fits(operands[k])), None)


def in_groups(compute: Compute, g: Grouping) -> Compute:
    """The compute with the sum taken in groups."""
    core, out, width = g.contraction.core, g.contraction.out, g.instruction.width
    short = replace(g.axis, extent=-(-g.axis.extent // width))
    reduce = tuple(short if r == g.axis else r for r in core.reduce)
    viewed = [_lies_together(compute, x, g.axis, width) for x in g.operands]
    groups = [_group(g, x, view) for x, view in zip(g.operands, viewed, strict=True)]
    tensors = [
        _seen_in_groups(t, g.instruction)
        if any(v and x.tensor == t.name for x, v in zip(g.operands, viewed, strict=True))
        else t
        for t in compute.tensors
    ]
    added, factors, values = [], tuple[Expr, ...](groups), out.values
    if g.summed is not None:
        plain = groups[g.summed]
        flipped = Apply("xor", (groups[1 - g.summed], SIGNS), "ui8x4")
        added, factors = [_offset(core, reduce, plain)], (flipped, plain)
        tensors.append(_offset_tensor(added[0]))
        values = _corrected(core, out, added[0])
    product = Apply("dot", factors, g.contraction.dtype)
    changed = {
        core.name: [*added, replace(core, reduce=reduce, values=(product,))],
        out.name: [replace(out, values=values)],
    }
    stages = [x for s in compute.stages for x in changed.get(s.name, [s])]
    return Compute(tuple(tensors), tuple(stages))


def _group(g: Grouping, x: Load, viewed: bool) -> Load:
    if viewed:
        return replace(x, dtype=g.instruction.group)
    d = _dimension(x, g.axis)
    index = (*x.index[:d], x.index[d] * g.instruction.width, *x.index[d + 1 :])
    return replace(x, index=index, dtype=g.instruction.group, along=d)


def _seen_in_groups(t: Tensor, instruction: DotInstruction) -> Tensor:
    shape = (*t.shape[:-1], t.shape[-1] // instruction.width)
    return replace(t, shape=shape, dtype=instruction.group)


def _offset(core: Stage, reduce: tuple[Axis, ...], x: Load) -> Stage:
    """128 times the sums of an operand, by the instruction itself."""
    parallel = tuple(a for a in core.parallel if a.name in x.axes)
    store = Store(OFFSET, tuple(Affine.axis(a.name) for a in parallel))
    return Stage(OFFSET, parallel, reduce, (store,), (Apply("dot", (SIGNS, x), "i32"),), SUM)


def _offset_tensor(stage: Stage) -> Tensor:
    return Tensor(OFFSET, tuple(a.extent for a in stage.parallel), "i32", "temporary")


def _corrected(core: Stage, out: Stage, offset: Stage) -> tuple[Expr, ...]:
    """The last stage's values, of sums less their offsets."""
    total = Load(core.stores[0].tensor, core.stores[0].index, "i32")
    less = Load(OFFSET, offset.stores[0].index, "i32")
    return map_all_loads(out.values, {total: Apply("subtract", (total, less), "i32")})

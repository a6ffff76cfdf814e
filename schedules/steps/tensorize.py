"""The step that has a processor's matrix unit compute what is written out of a stage."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import Layout, LoopNest, StageNest, region
from hlotune.schedules.steps.tile_products import product_of
from hlotune.schedules.targets.units import AMX_GROUPS, AMX_LANES, has_matrix_unit


@dataclass(frozen=True, slots=True)
class Tensorize:
    """Computes what is written out of a sum of dots by products of tiles, on the matrix unit.

    unroll r in 16: unroll i in 32: vectorize j in 16: c[i, j] += dot(a[i, r], b[r, j])
    ->  Tensorize("i", "r")  ->  tiles c[0..16, :] += a[0..16, :] b; c[16..32, :] += ...

    The results stay in the unit's registers where they stayed in vectors, and go to memory behind:
    a consumer reads them there.  Operands lie as tiles take them: the groups of the one together,
    the lanes of the other.
    """

    stage: str
    rows: str
    """The parallel axis that rows of tiles go along; they may lie apart."""
    groups: str
    """The reduction that tiles sum over."""

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        axes = [a.name for a in s.stage.parallel], [a.name for a in s.stage.reduce]
        for name, known in zip((self.rows, self.groups), axes, strict=True):
            require(name in known, "tensorize", f"expected one of the axes {known}, got {name!r}")
        scope = "task" if s.scope == "register" else s.scope
        tiled = replace(s, tiles=(self.rows, self.groups), scope=scope)
        check_tiles(nest, tiled)
        return nest.put(tiled)


def check_tiles(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where the unit cannot compute what a stage has written out as tiles.

    Of finished nests too: what comes after the step may change loops, and how operands lie.
    """
    assert s.tiles is not None
    rows, groups = s.tiles
    require(s.lanes == AMX_LANES, "tensorize", f"vectors have {s.lanes} lanes, tiles {AMX_LANES}")
    require(s.accumulate is not None, "tensorize", "results are not held around the sum")
    found = product_of(s.stage, rows, groups, s.vector_root or "")
    require(found is not None, "tensorize", "it is no product of tiles along these axes")
    assert found is not None
    unit = has_matrix_unit(nest.target, found.right.dtype)
    wanted = f"{nest.target.name} has no matrix unit for {found.right.dtype}"
    require(unit, "tensorize", wanted)
    deep = _check_sizes(nest, s, found.right)
    for x, last, whole in (
        (found.left, groups, deep),
        (found.right, s.vector_root or "", AMX_LANES),
    ):
        lies = _lies_along(nest, s, x, last, whole)
        require(lies, "tensorize", f"{x} does not lie along {last}, whole tiles together")
    for y in s.stage.stores if s.layout else ():  # without one lanes lie together in scratch
        lies = _is_along(y.index, s.layout, s.vector_root or "", AMX_LANES)
        require(lies, "tensorize", f"sums in {y.tensor} do not lie along {s.vector_root}")


def _check_sizes(nest: LoopNest, s: StageNest, right: Load) -> int:
    """The steps of the groups that are written out."""
    assert s.tiles is not None
    rows, groups = s.tiles
    written = [x.root for x in s.loops[s.written_out :]]
    require(groups in written, "tensorize", f"no steps of {groups} are written out: unroll some")
    sizes = s.sizes_inside(s.written_out - 1, region(nest, s))
    deep = sizes[groups]
    require(
        deep <= AMX_GROUPS, "tensorize", f"{deep} steps are written out, tiles have {AMX_GROUPS}"
    )
    for r in s.stage.reduce:
        single = r.name == groups or sizes[r.name] == 1
        require(single, "tensorize", f"steps of {r.name} are written out: leave it a loop")
    for a in s.stage.parallel:
        single = a.name in (rows, s.vector_root) or sizes[a.name] == 1
        varies = a.name in right.axes
        message = f"rows of {a.name} are written out, along which {right} varies too"
        require(single or not varies, "tensorize", message)
    return deep


def _lies_along(nest: LoopNest, s: StageNest, x: Load, axis: str, whole: int) -> bool:
    """Whether an operand is read without checks, and lies together along an axis."""
    maker, tensor = nest.producer(x.tensor), nest.compute.tensor(x.tensor)
    layout = maker.layout if maker else ()
    plain = x.dtype == tensor.dtype and not guarded(nest.compute, s.stage, x)
    return plain and _is_along(x.index, layout, axis, whole) and (maker is None or bool(layout))


def _is_along(index: Sequence[Affine], layout: Layout, axis: str, whole: int) -> bool:
    """Whether elements lie together along an axis; blocks may only be of it, of whole tiles."""
    last = layout[-1][0] if layout else len(index) - 1
    blocks = [(d, block) for d, block in layout if block > 1]
    together = all(d == last and block % whole == 0 for d, block in blocks)
    return index[last].coefficients.get(axis) == 1 and together

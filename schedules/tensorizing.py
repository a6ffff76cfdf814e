"""The step that has a processor's matrix unit compute what is written out of a stage."""

from dataclasses import dataclass, replace

from hlotune.schedules.borders import guarded
from hlotune.schedules.errors import require
from hlotune.schedules.expr import Load
from hlotune.schedules.matrix import GROUPS, LANES, has_unit, product_of
from hlotune.schedules.nest import LoopNest, StageNest, region


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
        require(s.lanes == LANES, "tensorize", f"vectors have {s.lanes} lanes, tiles {LANES}")
        require(s.accumulate is not None, "tensorize", "results are not held around the sum")
        found = product_of(s.stage, self.rows, self.groups, s.vector_root or "")
        require(found is not None, "tensorize", "it is no product of tiles along these axes")
        assert found is not None
        unit = has_unit(nest.target, found.right.dtype)
        wanted = f"{nest.target.name} has no matrix unit for {found.right.dtype}"
        require(unit, "tensorize", wanted)
        for x, last in ((found.left, self.groups), (found.right, s.vector_root or "")):
            require(_lies_along(nest, s, x, last), "tensorize", f"{x} does not lie along {last}")
        self._check_sizes(nest, s, found.right)
        scope = "task" if s.scope == "register" else s.scope
        return nest.put(replace(s, tiles=(self.rows, self.groups), scope=scope))

    def _check_sizes(self, nest: LoopNest, s: StageNest, right: Load) -> None:
        sizes = s.sizes_inside(s.written_out - 1, region(nest, s))
        deep = sizes[self.groups]
        require(deep <= GROUPS, "tensorize", f"{deep} steps are written out, tiles have {GROUPS}")
        for r in s.stage.reduce:
            single = r.name == self.groups or sizes[r.name] == 1
            require(single, "tensorize", f"steps of {r.name} are written out: leave it a loop")
        for a in s.stage.parallel:
            single = a.name in (self.rows, s.vector_root) or sizes[a.name] == 1
            require(
                single or a.name not in right.axes,
                "tensorize",
                f"rows of {a.name} are written out, along which {right} varies too",
            )


def _lies_along(nest: LoopNest, s: StageNest, x: Load, axis: str) -> bool:
    """Whether an operand is read without checks, and lies together along an axis.

    Blocks may only be of what lies together.
    """
    maker, tensor = nest.producer(x.tensor), nest.compute.tensor(x.tensor)
    layout = maker.layout if maker else ()
    last = layout[-1][0] if layout else len(x.index) - 1
    blocks = {d for d, block in layout if block > 1}
    coefficient = x.index[last].coefficients.get(axis)
    whole = x.dtype == tensor.dtype and not guarded(nest.compute, s.stage, x)
    return whole and coefficient == 1 and blocks <= {last} and (maker is None or bool(layout))

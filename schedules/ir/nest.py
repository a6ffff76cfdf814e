"""Loop nests: what a schedule makes of a compute.

Every stage has its own loops, outermost first, and stands either at the root or inside a loop of
its consumer.  A loop walks one *root* axis of its stage in steps: its variable is the absolute
position on that axis, from the position of the enclosing loop of the same root to `min(that
position + that loop's step, extent)`.  Steps of one root divide one another from the inside out, so
a ragged end appears only where what is walked ends: the axis, or the region of an inner stage.

A stage inside a loop of its consumer computes the region that the loop's body reads: the hull of
the index map, of static size, which need not be a multiple of the stage's own steps.  Start reading
at `LoopNest`; `schedules/steps/steps.py` changes nests, `region` below infers what is computed
where.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Literal

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute, Stage, lookups_text
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.far_requests import cache_by_rule
from hlotune.schedules.ir.hulls import Interval, hull, joined, read_by
from hlotune.schedules.targets.cpu import CpuTarget

LoopKind = Literal["serial", "parallel", "unroll", "vectorize"]
Border = Literal["", "peel", "clip"]
Scope = Literal["register", "task", "call", "load"]
Layout = tuple[tuple[int, int], ...]
"""Dimensions of a stored tensor from the slowest to the fastest, as (dimension, block).

A dimension may stand twice, first with its block, then with 1: `((3, 32), (0, 1), (3, 1))` holds
panels of 32 of dimension 3.
"""


@dataclass(frozen=True, slots=True)
class Loop:
    axis: str
    """Its name: the root, and after a split its place, `i0.1`."""
    root: str
    step: int
    kind: LoopKind = "serial"
    border: Border = ""


@dataclass(frozen=True, slots=True)
class Request:
    """For what lies some bytes behind what a vector of an argument loads."""

    tensor: str
    bytes: int
    cache: int = 0
    """The first or the second; 0 leaves it to `cache_by_rule`."""


ORDINALS = {1: "first", 2: "second"}


@dataclass(frozen=True, slots=True)
class StageNest:
    stage: Stage
    loops: tuple[Loop, ...]
    at: tuple[str, str] | None = None
    """(consumer, loop) inside whose body the stage is computed; None at the root."""
    scope: Scope = "call"
    """Where its results live when they are temporaries."""
    accumulate: str | None = None
    """Its own loop inside which registers hold its results; "" holds them over all its loops."""
    adds_up: bool = False
    """Whether these begin at nothing each time, and are added to the results as they leave."""
    layout: Layout = ()
    """How its results lie in memory, when not in registers; () is row-major."""
    spacing: int = 0
    """Elements left free behind each slice of its results along their slowest dimension."""
    prefetch: tuple[str, ...] = ()
    """Packed operands whose next panel is asked for in its innermost loop."""
    stream: tuple[tuple[str, str], ...] = ()
    """(tensor, loop): what the loop's next iteration reads of the tensor is asked for in its
    innermost loop."""
    ahead: tuple[Request, ...] = ()
    """With each vector of an argument what lies so far behind it is asked for."""
    non_temporal: bool = False
    """Whether its results are stored past the caches."""
    ends_at: tuple[tuple[str, int], ...] = ()
    """Loops along the axis of each pair (axis, multiple) end where the stage's own end is for the
    region, at the next multiple."""
    overrun: tuple[str, ...] = ()
    """Axes along which its region is computed whole, beyond the end of the axis too."""
    tiles: tuple[str, str] | None = None
    """(parallel, reduce) axes along which tiles of the matrix unit have rows and groups: it
    computes what is written out."""

    def index(self, axis: str) -> int:
        for k, loop in enumerate(self.loops):
            if loop.axis == axis:
                return k
        names = " ".join(x.axis for x in self.loops)
        raise ScheduleError(f"stage {self.stage.name} has no loop {axis!r}; its loops are {names}")

    def sizes_inside(self, index: int, whole: dict[str, int]) -> dict[str, int]:
        """Elements of each root that the body of loop `index` walks at most.

        `whole` is the stage's region.
        """
        sizes = dict(whole)
        for loop in self.loops[: index + 1]:
            sizes[loop.root] = min(loop.step, sizes[loop.root])
        return sizes

    def trips(self, whole: dict[str, int]) -> tuple[int, ...]:
        """Iterations of each loop in a full tile of the enclosing one."""
        sizes, counts = dict(whole), []
        for loop in self.loops:
            counts.append(ceil(sizes[loop.root] / loop.step))
            sizes[loop.root] = min(loop.step, sizes[loop.root])
        return tuple(counts)

    @property
    def lanes(self) -> int:
        """Elements of a vector of this stage; 1 when nothing is vectorized."""
        last = self.loops[-1] if self.loops else None
        if last is None or last.kind != "vectorize":
            return 1
        outer = [x for x in self.loops[:-1] if x.root == last.root]
        return outer[-1].step if outer else self.stage.extents[last.root]

    @property
    def written_out(self) -> int:
        """The first loop from which on all are unrolled or vectorized."""
        k = len(self.loops)
        while k and self.loops[k - 1].kind in ("unroll", "vectorize"):
            k -= 1
        return k

    @property
    def reduces_lanes(self) -> bool:
        """Whether the lanes of a vector are points of a reduction, not results."""
        root = self.vector_root
        return root is not None and any(a.name == root for a in self.stage.reduce)

    @property
    def vector_root(self) -> str | None:
        last = self.loops[-1] if self.loops else None
        return last.root if last is not None and last.kind == "vectorize" else None


@dataclass(frozen=True, slots=True)
class LoopNest:
    compute: Compute
    target: CpuTarget
    stages: tuple[StageNest, ...]
    """The stages in order of execution at each place; a producer stands before its consumer."""
    regions: "dict[int, tuple[StageNest, dict[str, int]]]" = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What is known of `region`, by the identity of the stage, which is kept with it."""

    def stage(self, name: str) -> StageNest:
        for s in self.stages:
            if s.stage.name == name:
                return s
        raise ScheduleError(
            f"no stage {name!r}; the stages are {' '.join(s.stage.name for s in self.stages)}"
        )

    def put(self, changed: StageNest) -> "LoopNest":
        same = changed.stage.name
        return replace(
            self, stages=tuple(changed if s.stage.name == same else s for s in self.stages)
        )

    def attached(self, name: str, axis: str) -> tuple[StageNest, ...]:
        """Stages computed inside a loop, in order."""
        return tuple(s for s in self.stages if s.at == (name, axis))

    def producer(self, tensor: str) -> StageNest | None:
        return next((s for s in self.stages if tensor in s.stage.stored), None)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def initial(compute: Compute, target: CpuTarget) -> LoopNest:
    """The nest before any step: each stage at the root, one serial loop an axis, in order."""
    stages = tuple(
        StageNest(s, tuple(Loop(a.name, a.name, 1) for a in s.axes))
        for s in map(without_empty_reduction, compute.stages)
    )
    return LoopNest(compute, target, stages)


def without_empty_reduction(stage: Stage) -> Stage:
    """The stage itself; of a reduction over no points one that stores the identities."""
    monoid = stage.combine
    if monoid is None or all(a.extent for a in stage.reduce):
        return stage
    dtypes = [tuple(stage.values[k].dtype for k in group) for group in stage.groups]
    nothing = tuple(c for found in dtypes for c in monoid.identities(found))
    return replace(stage, reduce=(), values=nothing, combine=None)


def region(nest: LoopNest, stage: StageNest) -> dict[str, int]:
    """Largest size, along each axis, of what one execution of a stage computes."""
    if stage.at is None:
        return stage.stage.extents
    if id(stage) not in nest.regions:
        nest.regions[id(stage)] = stage, _region(nest, stage)
    return dict(nest.regions[id(stage)][1])


def _region(nest: LoopNest, stage: StageNest) -> dict[str, int]:
    assert stage.at is not None
    outer = nest.stage(stage.at[0])
    inside = outer.sizes_inside(outer.index(stage.at[1]), region(nest, outer))
    users = readers(nest, stage)
    if len(users) > 1:
        return _sizes(stage, _read_by_all(nest, stage, outer, inside, {}))
    return _needed(stage, users[0], _seen(nest, users[0], outer, inside))


def readers(nest: LoopNest, stage: StageNest) -> tuple[StageNest, ...]:
    """The stages that read what a stage stores, in order."""
    return tuple(s for s in nest.stages if s is not stage and is_read_by(stage.stage, s.stage))


def _seen(nest: LoopNest, user: StageNest, at: StageNest, inside: dict[str, int]) -> dict[str, int]:
    """What `user` walks inside a loop of `at`, when it is `at` or stands further inside.

    It is read by `at`, or by other stages that stand further inside.
    """
    if user is at or user.at is None:
        return inside
    users = readers(nest, user)
    if len(users) > 1:
        return _sizes(user, _read_by_all(nest, user, at, inside, {}))
    return _needed(user, users[0], _seen(nest, users[0], at, inside))


def _needed(stage: StageNest, user: StageNest, inside: dict[str, int]) -> dict[str, int]:
    sizes = stage.stage.extents
    for axis, size in hull(stage.stage, user.stage, inside).items():
        sizes[axis] = min(size, sizes[axis])
    return sizes


def _sizes(stage: StageNest, parts: dict[str, Interval]) -> dict[str, int]:
    extents = stage.stage.extents
    return extents | {axis: min(part.size, extents[axis]) for axis, part in parts.items()}


Walks = dict[str, dict[str, Interval]]
"""What stages walk inside a loop, by their names: stages that read one another in a diamond would
be asked again for each way through it."""


def _read_by_all(
    nest: LoopNest, stage: StageNest, at: StageNest, inside: dict[str, int], known: Walks
) -> dict[str, Interval]:
    """What all readers of a stage read of it together inside a loop of `at`; `known` grows.

    Raises ScheduleError where it depends on positions how far the parts of readers lie apart.
    """
    parts = [
        read_by(stage.stage, user.stage, _walked(nest, user, at, inside, known))
        for user in readers(nest, stage)
    ]
    return joined(stage.stage.name, parts)


def _walked(
    nest: LoopNest, user: StageNest, at: StageNest, inside: dict[str, int], known: Walks
) -> dict[str, Interval]:
    """`_seen` with where each part begins, in positions of `at`: of a whole axis at 0."""
    name = user.stage.name
    if name not in known:
        known[name] = _walk(nest, user, at, inside, known)
    return known[name]


def _walk(
    nest: LoopNest, user: StageNest, at: StageNest, inside: dict[str, int], known: Walks
) -> dict[str, Interval]:
    if user is at or user.at is None:
        extents = at.stage.extents
        return {
            a: Interval(Affine.axis(a) if n < extents[a] else Affine(), n)
            for a, n in inside.items()
        }
    parts = _read_by_all(nest, user, at, inside, known)
    sizes = _sizes(user, parts)
    return {a: Interval(parts[a].low if a in parts else Affine(), n) for a, n in sizes.items()}


def asked_cache(nest: LoopNest, s: StageNest, request: Request) -> int:
    """The cache that a request of a stage goes to: the one that is named, or that of the rule."""
    root = s
    while root.at is not None:
        root = nest.stage(root.at[0])
    return request.cache or cache_by_rule(
        nest.compute, s.stage, request.tensor, nest.target, bytes_ahead=request.bytes,
        lanes_along=s.vector_root, passes=root.non_temporal, alone=root is s,
    )  # fmt: skip


def encloses(nest: LoopNest, place: tuple[str, str], stage: StageNest) -> bool:
    """Whether a loop, as (stage, loop), is one of a stage's own or has it inside."""
    name, axis = place
    if stage.stage.name == name:
        return True
    while stage.at is not None:
        outer = nest.stage(stage.at[0])
        if outer.stage.name == name:
            return outer.index(axis) <= outer.index(stage.at[1])
        stage = outer
    return False


def is_read_by(producer: Stage, consumer: Stage) -> bool:
    """Whether a consumer loads something that a producer stores."""
    return not consumer.maps.keys().isdisjoint(producer.stored)


def reads(producer: Stage, consumer: Stage) -> tuple[Load, ...]:
    """Loads of a consumer from what a producer stores."""
    return tuple(x for x in consumer.loads if x.tensor in producer.stored)


def stored_shape(nest: LoopNest, stage: StageNest) -> tuple[int, ...]:
    """Extents, dimension by dimension, of the buffer that holds a temporary result of a stage."""
    shape, axes = nest.compute.tensor(stage.stage.stores[0].tensor).shape, stage.stage.stored_axes
    if axes is None:
        return shape
    sizes = region(nest, stage)
    return tuple(n if a is None else sizes[a] for a, n in zip(axes, shape, strict=True))


def is_in_own_order(stage: Stage) -> bool:
    """Whether every result is an array over the stage's parallel axes, and constant places."""
    return stage.stored_axes is not None


def stored_bytes(nest: LoopNest, stage: StageNest) -> int:
    """Bytes of all temporary buffers of a stage's execution, blocks rounded up; 0 in registers."""
    if stage.scope == "register":
        return 0
    shape = list(stored_shape(nest, stage))
    for dimension, block in stage.layout:
        shape[dimension] = ceil(shape[dimension] / block) * block
    names = dict.fromkeys(x.tensor for x in stage.stage.stores)
    temporaries = [nest.compute.tensor(name) for name in names]
    elements = prod(shape) + stage.spacing * slices(stage.layout, shape)
    return sum(elements * BYTES[t.dtype] for t in temporaries if t.role == "temporary")


def slices(layout: Layout, shape: Sequence[int]) -> int:
    """Along the slowest dimension."""
    dimension, block = layout[0] if layout else (0, 1)
    return ceil(shape[dimension] / block) if shape else 1


def strides(layout: Layout, shape: tuple[int, ...], spacing: int = 0) -> dict[tuple[int, int], int]:
    """Elements between neighbours (of a block: between blocks) of each dimension of a layout."""
    result, below = dict[tuple[int, int], int](), 1
    blocks = {d: b for d, b in layout if b > 1}
    for dimension, block in reversed(layout or tuple((d, 1) for d in range(len(shape)))):
        result[dimension, block] = below
        inner = blocks.get(dimension)
        if block > 1:
            below *= ceil(shape[dimension] / block)
        else:
            below *= inner if inner else shape[dimension]
    if spacing and result:
        result[[*result][-1]] += spacing  # the slowest was put in last
    return result


def _lines(nest: LoopNest) -> Iterator[str]:
    for s in nest.stages:
        if s.at is None:
            yield from _stage_lines(nest, s, 0)


def _stage_lines(nest: LoopNest, s: StageNest, depth: int) -> Iterator[str]:
    whole = region(nest, s)
    if s.accumulate == "":
        yield f"{'  ' * depth}{s.stage.name}: registers"
    for loop, trips in zip(s.loops, s.trips(whole), strict=True):
        if trips > 1 or nest.attached(s.stage.name, loop.axis):
            border = f" {loop.border}" if loop.border else ""
            step = f" step {loop.step}" if loop.step > 1 else ""
            yield f"{'  ' * depth}{loop.kind} {loop.axis} x{trips}{step}{border}"
            depth += 1
        if s.accumulate == loop.axis:
            yield f"{'  ' * depth}{s.stage.name}: registers{', added up' * s.adds_up}"
        for inner in nest.attached(s.stage.name, loop.axis):
            yield from _stage_lines(nest, inner, depth)
    if s.tiles:
        yield f"{'  ' * depth}tiles of {s.tiles[0]}, {s.tiles[1]} and {s.vector_root}"
    for tensor in s.prefetch:
        yield f"{'  ' * depth}prefetch {tensor}"
    for tensor, axis in s.stream:
        yield f"{'  ' * depth}prefetch {tensor} along {axis}"
    for x in s.ahead:
        cache = ORDINALS[asked_cache(nest, s, x)]
        yield f"{'  ' * depth}prefetch {x.tensor} {x.bytes} bytes ahead, into the {cache} cache"
    for store, value in zip(s.stage.stores, s.stage.values, strict=True):
        place = f"{store.tensor}[{', '.join(map(str, store.index))}]"
        how = "=" if s.stage.combine is None else f"{s.stage.combine}="
        where = "" if s.scope in ("register", "call") else f"  ({s.scope})"
        where += "  past the caches" * s.non_temporal
        yield f"{'  ' * depth}{place} {how} {value}{lookups_text(value)}{where}"

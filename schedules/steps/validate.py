"""What holds of every finished nest, whatever steps made it.

A step looks only at the nest that it changes; a later one may undo what it relied on.  What code
generation relies on is therefore asked here, of the nest that all steps together have made.  What
one step alone makes necessary is stated beside that step, which asks for it too.
"""

from itertools import pairwise

from hlotune.schedules.errors import require
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.nest import LoopNest, StageNest, encloses, is_read_by, reads, region
from hlotune.schedules.steps.accumulate import check_held, check_pieces
from hlotune.schedules.steps.end_at import check_ends
from hlotune.schedules.steps.layout import check_preloaded
from hlotune.schedules.steps.overrun import check_overrun, check_reach
from hlotune.schedules.steps.prefetch import check_requests
from hlotune.schedules.steps.streaming import check_stored_once
from hlotune.schedules.steps.tensorize import check_tiles
from hlotune.schedules.steps.vectorize_reduction import check_lanes


def check_form(nest: LoopNest) -> None:
    """Raises ScheduleError where loops stand so that they would compute something else."""
    for s in nest.stages:
        _check_parallel(s)
        _check_vectors(s)
        _check_steps(s)
        _check_borders(s)
        check_held(s)
        check_lanes(s)
        check_requests(nest, s)
        _check_onto(s)
        if s.tiles:
            check_tiles(nest, s)
        if s.adds_up:
            check_pieces(s)
        if s.non_temporal:
            check_stored_once(s)
        if s.scope == "load":
            check_preloaded(nest, s)
        if s.layout:
            _check_inside(nest, s)
        if s.at is not None:
            _check_enclosing(nest.stage(s.at[0]), s, s.at[1])
            _check_readers(nest, s, s.at)
            _check_region(nest, s)
        _check_scan(s)
        check_overrun(nest, s)
        check_ends(nest, s)
        check_reach(nest, s)


def _check_parallel(s: StageNest) -> None:
    """A task is one iteration of the outermost loops, each along an axis of its own."""
    count = sum(x.kind == "parallel" for x in s.loops)
    prefix = all(x.kind == "parallel" for x in s.loops[:count])
    require(
        prefix,
        s.stage.name,
        "a parallel loop stands inside a loop that is not: run the outer ones too",
    )
    require(not count or s.at is None, s.stage.name, "parallel loops stand inside another stage")
    roots = [x.root for x in s.loops[:count]]
    twice = next((x for x in roots if roots.count(x) > 1), None)
    require(
        twice is None,
        s.stage.name,
        f"two parallel loops walk {twice}: run only the outer one in tasks",
    )


def _check_scan(s: StageNest) -> None:
    """The results of a scan are those of all its points, each behind the one before it."""
    if not s.stage.scans:
        return
    name = s.stage.name
    require(len(s.stage.reduce) == 1, name, "a scan goes along one axis: split it as a compute")
    require(s.at is None, name, "a scan stands inside another stage: compute it at the root")
    require(not s.adds_up, name, "a scan adds no pieces up: leave that out")
    require(not s.layout and not s.overrun, name, "a scan stores its results as they are")


def _check_vectors(s: StageNest) -> None:
    inside = [x.axis for x in s.loops[:-1] if x.kind == "vectorize"]
    require(
        not inside,
        s.stage.name,
        f"{' '.join(inside)} is vectorized and not innermost: split and reorder before",
    )


def _check_onto(s: StageNest) -> None:
    """What is merged into memory where data says meets there whatever came before."""
    apart = s.accumulate is None and not s.reduces_lanes
    require(not s.stage.onto or apart, s.stage.name, (
        "it adds to places that data decides, which neither registers nor lanes hold: "
        "let its results stay in memory, and vectors lie along its parallel axes"
    ))  # fmt: skip


def _check_steps(s: StageNest) -> None:
    """Tiles of tiles: only at the end of an axis is one ragged."""
    for root in dict.fromkeys(x.root for x in s.loops):
        steps = [x.step for x in s.loops if x.root == root]
        nested = steps[-1] == 1 and all(a % b == 0 for a, b in pairwise(steps))
        require(
            nested,
            s.stage.name,
            f"steps {steps} of the loops of {root} do not divide one another to 1",
        )


def _check_borders(s: StageNest) -> None:
    held = len(s.loops)
    if s.accumulate is not None:
        held = s.index(s.accumulate) + 1 if s.accumulate else 0
    for k, loop in enumerate(s.loops):
        name = f"{loop.border} of {loop.axis}"
        require(
            not loop.border or loop.kind == "serial",
            s.stage.name,
            f"{name}: the loop is {loop.kind}",
        )
        if loop.border == "clip":
            require(loop.step == 1, s.stage.name, f"{name}: the loop goes in steps of {loop.step}")
            # memory is written at the first position of a reduction, which may be left out
            require(k >= held, s.stage.name, f"{name}: results are not held in registers around it")


def _check_enclosing(outer: StageNest, s: StageNest, axis: str) -> None:
    """What is computed inside a loop is computed once an iteration, by a task or by nobody else."""
    k = outer.index(axis)
    for loop in outer.loops[: k + 1]:
        single = loop.kind in ("serial", "parallel")
        require(single, s.stage.name, f"it stands inside {loop.axis}, which is {loop.kind}")
    between = k + 1 < len(outer.loops) and outer.loops[k + 1].kind == "parallel"
    require(
        not between,
        s.stage.name,
        f"{axis} is not the innermost parallel loop: compute it further inside",
    )


def _check_readers(nest: LoopNest, s: StageNest, place: tuple[str, str]) -> None:
    for user in nest.stages:
        inside = not is_read_by(s.stage, user.stage) or encloses(nest, place, user)
        require(inside, s.stage.name, f"{user.stage.name} reads it outside of {' '.join(place)}")


def _check_inside(nest: LoopNest, s: StageNest) -> None:
    """What has a layout is loaded without checks, so that there are no zeros around it."""
    for user in nest.stages:
        found = (x for x in reads(s.stage, user.stage) if guarded(nest.compute, user.stage, x))
        outside = next(found, None)
        require(outside is None, s.stage.name, (
            f"{user.stage.name} reads {outside} outside of it or skips in it, where a layout has "
            f"no zeros: pack what {user.stage.name} reads instead"
        ))  # fmt: skip


def _check_region(nest: LoopNest, s: StageNest) -> None:
    """Tiles that are walked by loops end with the region; only written out are they cut short.

    Blocks of a layout may reach beyond it: the buffer holds whole blocks.
    """
    whole, reduce = region(nest, s), {a.name for a in s.stage.reduce}
    axes = s.stage.stored_axes or tuple(a.name for a in s.stage.parallel)
    blocks = {(axes[d], block) for d, block in s.layout}
    for k, loop in enumerate(s.loops):
        inner = next((x for x in s.loops[k + 1 :] if x.root == loop.root), None)
        if inner is None or inner.kind in ("unroll", "vectorize") or loop.root in reduce:
            continue
        size = s.sizes_inside(k - 1, whole)[loop.root]
        fits = size <= loop.step or size % loop.step == 0 or (loop.root, loop.step) in blocks
        require(
            fits,
            s.stage.name,
            f"tiles of {loop.step} along {loop.root} do not fill the {size} needed",
        )

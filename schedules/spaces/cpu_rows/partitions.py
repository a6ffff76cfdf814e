"""Sketches of computes without a contraction: which stages share a nest, and which stand alone."""

from collections.abc import Callable
from math import prod

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.patterns.rows import Nest, joined
from hlotune.schedules.spaces.cpu_rows.forms import forms_of, lanes_of, tiles_along
from hlotune.schedules.steps.limit_formulas import TASK_BYTES
from hlotune.schedules.targets.cpu import CpuTarget

Partition = tuple[Nest, ...]
"""Nests in the order of their anchors; each stage stands in one of them."""


def partitions(compute: Compute, target: CpuTarget) -> tuple[Partition, ...]:
    """The distinct ways to share loops that are tried, the most promising first.

    Stages are joined where a nest keeps what it hands over in the second cache, wherever it is
    possible, or where no row axis is lost.  In the last partition every stage stands alone.
    """

    def cached(before: Nest, after: Nest) -> bool:
        heavy = is_heavy(compute, after)
        keeps = after.rows == before.rows or heavy
        own = prod(a.extent for a in after.members[0].parallel) if heavy else 1
        spread = tasks_of(compute, after, target) >= min(
            target.threads, max(own, tasks_of(compute, before, target))
        )
        return keeps and spread and row_bytes(compute, after) <= target.l2_bytes // 2

    def possible(before: Nest, after: Nest) -> bool:
        return row_bytes(compute, after) <= TASK_BYTES

    def same_rows(before: Nest, after: Nest) -> bool:
        return possible(before, after) and after.rows == before.rows

    def never(before: Nest, after: Nest) -> bool:
        return False

    rules = (cached, possible, same_rows, never)
    distinct: dict[object, Partition] = {}
    for rule in rules:
        found = _partition(compute, rule)
        distinct.setdefault(tuple((n.anchor.name, len(n.members)) for n in found), found)
    return tuple(distinct.values())


def _partition(compute: Compute, may_join: Callable[[Nest, Nest], bool]) -> Partition:
    """From the last stage to the first, each joins the nest of its readers where it may."""
    nests: list[Nest] = []
    read = {tensor for s in compute.stages for tensor in s.maps}
    for stage in reversed(compute.stages):
        if not stage.stored & read:
            nests.insert(0, Nest(stage))
            continue
        for k, nest in enumerate(nests):
            after = joined(compute, nest, stage)
            if after is not None and may_join(nest, after):
                nests[k] = after
                break
        else:
            nests.insert(0, Nest(stage))
    return tuple(nests)


def tasks_of(compute: Compute, nest: Nest, target: CpuTarget) -> int:
    """Tasks that a nest may have: its rows, and register tiles where these lie along the lanes."""
    stage = nest.anchor
    lanes = lanes_of(compute, stage, target)
    form = forms_of(compute, stage, lanes)[0]
    if form.vector not in nest.rows:
        return nest.row_points
    return nest.row_points // stage.extents[form.vector] * tiles_along(stage, form, lanes)


def is_heavy(compute: Compute, nest: Nest) -> bool:
    """Whether the newest member, or what it is made of, does an eighth of the anchor's work.

    A mean of each row is little work, and the sum that it is made of reads whole rows.
    """
    waiting, seen, work = [nest.members[0]], set[str](), 0
    while waiting:
        stage = waiting.pop()
        if stage.name in seen:
            continue
        seen.add(stage.name)
        work = max(work, stage.points)
        makers = (compute.producer(name) for name in {x.tensor for x in stage.loads})
        waiting += [s for s in makers if s is not None]
    return work * 8 >= nest.anchor.points


def row_bytes(compute: Compute, nest: Nest) -> int:
    """Bytes of all results of members that belong to one row."""
    return sum(held_bytes(compute, nest, s) for s in nest.members)


def held_bytes(compute: Compute, nest: Nest, stage: Stage) -> int:
    """Bytes of what one member stores for one row."""
    own = nest.row_axes(stage)
    points = 1
    for a in stage.parallel:
        points *= 1 if a.name in own else a.extent
    names = sorted(stage.stored)
    return points * sum(BYTES[compute.tensor(name).dtype] for name in names)


def touched_bytes(compute: Compute, nest: Nest) -> int:
    """Bytes of all that the stages of a nest read and store for one row, each tensor once."""
    sizes = dict[str, int]()
    for stage in nest.stages:
        own, extents = nest.row_axes(stage), stage.extents
        accesses = [(x.tensor, x.index) for x in stage.loads]
        accesses += [(x.tensor, x.index) for x in stage.stores]
        for name, index in accesses:
            tensor, walked = compute.tensor(name), {a for e in index for a, _ in e.terms}
            if tensor.role != "guard" and walked & set(own):
                points = min(prod(extents.get(a, 1) for a in walked - set(own)), tensor.elements)
                sizes[name] = max(sizes.get(name, 0), points * BYTES[tensor.dtype])
    return max(1, sum(sizes.values()))

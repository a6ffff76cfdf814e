"""What a loop nest would take on a device that exists on paper alone: a closed formula.

It knows what makes real kernels fast: multiply-adds in flight, loads a multiply-add, the way back
to the head of a loop, cache lines that cross each cache's border, tasks that do not divide among
the threads, code that outgrows its cache.  Its constants are those of a core of today, rounded; no
measurement went into them, and none shall be compared with it.
"""

from dataclasses import dataclass, replace
from math import ceil, prod

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import LoopNest, StageNest, region
from hlotune.schedules.steps.limits import code_statements
from hlotune.schedules.targets.cpu import LINE_BYTES

CLOCK_HZ = 4e9
PORTS = 2
"""Vector operations, and as many vector loads, that begin in a cycle."""
LATENCY_CYCLES = 4
"""From a multiply-add to the next one of the same sum."""
LOOP_CYCLES = 1.5
BYTES_A_CYCLE = (40.0, 16.0, 4.0)
"""Into the first, second and third cache, of one core."""
LAUNCH_S, TASK_S = 3e-6, 2e-7
HIDDEN = 0.75
"""Share of the smaller of arithmetic and transfers that runs behind the larger."""
CODE_STATEMENTS = 384
"""Code of more statements is fetched anew again and again."""


@dataclass(frozen=True, slots=True)
class Level:
    """The body of one loop around a stage's statements, or all of them."""

    kind: str
    root: str
    trips: int
    runs: float
    """How often the body is executed."""
    sizes: dict[str, int]
    """What the stage walks in it, by axis."""
    own: bool
    """Whether the loop is one of the stage's own."""
    place: tuple[str, str] | None


Stream = tuple[tuple[str, ...], list[float]]
"""Axes that a tensor's elements depend on, and the bytes of it that each level touches."""


def simulated_s(nest: LoopNest) -> float:
    """Seconds of one call.  What is packed when a program is loaded takes none."""
    stages = [s for s in nest.stages if s.scope != "load"]
    total_s = sum(stage_s(nest, s) for s in stages)
    roots = [s for s in stages if s.at is None]
    return total_s + sum(launch_s(levels(nest, s)) for s in roots)


def launch_s(chain: list[Level]) -> float:
    tasks = tasks_of(chain)
    return LAUNCH_S + TASK_S * tasks if tasks > 1 else 0.0


def tasks_of(chain: list[Level]) -> int:
    return prod(x.trips for x in chain if x.kind == "parallel")


def stage_s(nest: LoopNest, s: StageNest) -> float:
    chain = levels(nest, s)
    busy, moved = arithmetic_cycles(nest, s, chain), transfer_cycles(nest, s, chain)
    cycles = max(busy, moved) + (1 - HIDDEN) * min(busy, moved)
    tasks, threads = tasks_of(chain), nest.target.threads
    share = ceil(tasks / threads) / tasks
    if code_statements(nest, s) > CODE_STATEMENTS:
        cycles *= 1.15
    return cycles * share / CLOCK_HZ


def levels(nest: LoopNest, s: StageNest) -> list[Level]:
    """The levels of a stage, from all of its work to the innermost loop around its statements."""
    chain = [Level("", "", 1, 1.0, s.stage.extents, False, None)]
    if s.at is not None:
        outer = nest.stage(s.at[0])
        around = levels(nest, outer)
        end = len(around) - len(outer.loops) + outer.index(s.at[1]) + 1
        chain += [replace(x, sizes=_inside(nest, s, x), own=False) for x in around[1:end]]
    whole, trips = region(nest, s), s.trips(region(nest, s))
    for k, (loop, n) in enumerate(zip(s.loops, trips, strict=True)):
        place, sizes = (s.stage.name, loop.axis), s.sizes_inside(k, whole)
        chain.append(Level(loop.kind, loop.root, n, chain[-1].runs * n, sizes, True, place))
    return chain


def _inside(nest: LoopNest, s: StageNest, level: Level) -> dict[str, int]:
    return region(nest, replace(s, at=level.place))


def arithmetic_cycles(nest: LoopNest, s: StageNest, chain: list[Level]) -> float:
    """Bodies between loops that iterate: operations, loads, or the chain of sums, the slowest."""
    unrolled = [x for x in chain if x.own and x.kind == "unroll"]
    statements = prod(x.trips for x in unrolled)
    bodies = chain[-1].runs / statements
    if s.lanes > 1:
        bodies /= chain[-1].trips
    operations = max(1, s.stage.flops // max(1, s.stage.points) // (2 if s.stage.combine else 1))
    loads = sum(load_cost(nest, s, x, unrolled) for x in s.stage.loads)
    reduce = {a.name for a in s.stage.reduce}
    steps = prod(x.trips for x in unrolled if x.root in reduce)
    waiting = LATENCY_CYCLES * steps if s.stage.combine else 0
    body = max(statements * operations / PORTS, loads / PORTS, waiting) + LOOP_CYCLES
    return bodies * body + held_cycles(s, chain)


def held_cycles(s: StageNest, chain: list[Level]) -> float:
    """Sums that are loaded into registers and stored again; all of them, all the time, where no
    loop holds them."""
    if not s.stage.combine:
        return chain[-1].runs / (chain[-1].trips if s.lanes > 1 else 1)
    start = len(chain) - len(s.loops) + (s.index(s.accumulate) + 1 if s.accumulate else 0)
    inside = chain[start:] if s.accumulate is not None else []
    reduce = {a.name for a in s.stage.reduce}
    tile = prod(x.trips for x in inside if x.root not in reduce and x.kind != "vectorize")
    entered = chain[start - 1].runs if inside else chain[-1].runs
    return 2.0 * entered * tile


def load_cost(nest: LoopNest, s: StageNest, load: Load, unrolled: list[Level]) -> float:
    """Vector loads that one body takes; a gather takes one for each two lanes."""
    distinct = prod(x.trips for x in unrolled if x.root in roots(s.stage, load))
    return distinct * max(1, s.lanes // 2) if is_gathered(nest, s, load) else distinct


def is_gathered(nest: LoopNest, s: StageNest, load: Load) -> bool:
    root = s.vector_root
    if root is None or root not in load.axes or nest.producer(load.tensor) is not None:
        return False
    strides, index = nest.compute.tensor(load.tensor).strides, s.stage.walked(load).index
    return sum(e.coefficients.get(root, 0) * n for e, n in zip(index, strides, strict=True)) != 1


def transfer_cycles(nest: LoopNest, s: StageNest, chain: list[Level]) -> float:
    """Bytes into each cache, over its bandwidth."""
    walked = [with_digits(s.stage, v.sizes) for v in chain]
    streams = [
        (roots(s.stage, x), [lines_bytes(nest, x, sizes) for sizes in walked])
        for x in s.stage.walked_loads
    ]
    names = [a.name for a in s.stage.parallel]
    element = BYTES[nest.compute.tensor(s.stage.stores[0].tensor).dtype] * len(s.stage.stores)
    stored = [float(element * prod(v.sizes[a] for a in names)) for v in chain]
    streams.append((tuple(names), stored))
    return sum(
        sum(entering(axes, touched, chain, fitting(streams, size)) for axes, touched in streams)
        / rate
        for size, rate in zip(nest.target.caches_bytes, BYTES_A_CYCLE, strict=True)
    )


def with_digits(stage: Stage, sizes: dict[str, int]) -> dict[str, int]:
    """What is walked, also of the digits that index maps use like axes."""
    spans = {x.name: min(x.extent, ceil(sizes[x.axis] / x.below)) for x in stage.digits}
    return sizes | spans


def roots(stage: Stage, load: Load) -> tuple[str, ...]:
    """The stage's own axes on which it depends what is loaded."""
    of_digits = {x.name: x.axis for x in stage.digits}
    return tuple(dict.fromkeys(of_digits.get(a, a) for a in load.axes))


def fitting(streams: list[Stream], cache_bytes: int) -> int:
    """The outermost level of which all that it touches fits into a cache, or the innermost one."""
    touched = [sum(sizes) for sizes in zip(*(t for _, t in streams), strict=True)]
    return next((k for k, t in enumerate(touched) if t <= 0.75 * cache_bytes), len(touched) - 1)


def entering(axes: tuple[str, ...], touched: list[float], chain: list[Level], level: int) -> float:
    """Bytes of one tensor: what a level touches, each time that it runs.

    In the loops around it that walk other axes the tensor's part stays where it is.
    """
    runs = chain[level].runs
    for x in reversed(chain[1 : level + 1]):
        if x.trips > 1 and (x.root in axes or x.kind == "parallel"):
            break
        runs /= x.trips
    return runs * touched[level]


def lines_bytes(nest: LoopNest, load: Load, sizes: dict[str, int]) -> float:
    """Cache lines of a tensor that a region of the stage reads; packed ones lie close together."""
    tensor = nest.compute.tensor(load.tensor) if _is_known(nest, load) else None
    elements = run = 1.0
    is_run = True
    for d in range(len(load.index) - 1, -1, -1):
        span = 1.0 + sum(abs(c) * (sizes[a] - 1) for a, c in load.index[d].terms)
        span /= load.divisor(d)
        extent = tensor.shape[d] if tensor else span
        span = min(span, extent)
        run, is_run = (run * span if is_run else run), is_run and span >= extent
        elements *= span
    size = BYTES[load.dtype]
    return elements / run * ceil(run * size / LINE_BYTES) * LINE_BYTES


def _is_known(nest: LoopNest, load: Load) -> bool:
    return any(t.name == load.tensor and t.role != "temporary" for t in nest.compute.tensors)

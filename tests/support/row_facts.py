"""The row of features of one nest, from the nest itself in plain Python: the reference for arrays.

Rates of the processor are stated here again, so that a slip in either place shows.
"""

from math import ceil, gcd, log2, prod

from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.patterns.contraction import Contraction
from tests.support.nest_facts import Facts

Row = dict[str, float]


def row_of(c: Contraction, nest: LoopNest, lanes: int) -> Row:
    """Columns by name; those of operands that are not there are left out."""
    f = Facts(c, nest)
    costs = costs_of(f, lanes)
    row = kernel(f, lanes) | shape(f, lanes) | edges(f, lanes) | memory(f)
    row |= {f"cost_{name}": log(x) for name, x in costs.items()}
    for k in range(f.operands):
        row |= {f"operand{k}_{name}": x for name, x in operand(f, k, lanes).items()}
    return row


def log(x: float) -> float:
    return log2(max(x, 2.0**-16))


def kernel(f: Facts, lanes: int) -> Row:
    c, t = f.c, f.nest.target
    moved = sum(x.bytes for x in c.compute.tensors if x.role != "temporary")
    results = prod(a.extent for a in c.parallel)
    return {
        "flops": log(f.flops), "results": log(results), "reduction": log(f.flops / 2 / results),
        "intensity": log(f.flops / moved),
        "real_work": flops_of(c.compute) / sum(s.flops for s in c.compute.stages),
        "epilogue_flops": c.out.flops / c.out.points, "element_bytes": BYTES[c.dtype],
        "is_float": is_float(c.dtype), "lanes": lanes, "registers": t.vector_registers,
        "threads": t.threads, "l1_bytes": log(t.l1_bytes), "l2_bytes": log(t.l2_bytes),
        "l3_bytes": log(t.l3_bytes),
    }  # fmt: skip


def accumulators(f: Facts, lanes: int) -> float:
    return f.sums(f.held) / lanes / f.lanes_used(lanes)


def shape(f: Facts, lanes: int) -> Row:
    (rows, vectors), registers = f.tile, f.nest.target.vector_registers
    inner, tasks, runs = f.inner, f.runs(f.task), f.runs(f.held)
    threads = f.nest.target.threads
    tiles = prod(f.pieces(a.name, f.held) for a in f.c.parallel)
    return {
        "work": 0, "rows": rows, "vectors": vectors,
        "register_share": (rows * vectors + vectors + 1) / registers,
        "lanes_used": f.lanes_used(lanes),
        "ragged": log(rows * vectors / accumulators(f, lanes)),
        "unrolled": log(f.unrolled(inner) / rows / vectors), "code": log(f.unrolled(inner)),
        "tasks": log(tasks), "balance": tasks / (ceil(tasks / threads) * threads),
        "task_flops": log(f.flops / tasks), "tile_flops": log(f.flops / runs),
        "tile_reduction": log(prod(f.size(r.name, f.held) for r in f.c.reduce)),
        "innermost_trips": log(f.runs(inner) / f.runs(inner - 1) if inner else 1),
        "partial_sums": log(runs / tiles), "handed_over": f.core.scope == "register",
        "clipped": len(f.bordered("clip")), "peeled": len(f.bordered("peel")),
        "prefetch": 2 if f.core.stream else bool(f.core.prefetch),
        "reduces_lanes": f.lane_root in [r.name for r in f.c.reduce],
    }  # fmt: skip


def edges(f: Facts, lanes: int) -> Row:
    axes = [a for k in range(f.operands) for a in f.open(k)]
    tasks, threads = f.runs(f.task), f.nest.target.threads
    wall = f.flops / 4 / lanes * tasks / (ceil(tasks / threads) * threads)
    return {
        "even": f.even, "open_rows": sum(a != f.lane_root for a in axes),
        "open_lanes": f.lane_root in axes,
        "open_checks": log(0.5 * f.tile[0] * sum(looks(f, k) for k in range(f.operands)) / wall),
    }  # fmt: skip


def looks(f: Facts, k: int) -> int:
    """How often the open windows of an operand are looked at."""
    if not f.open(k):
        return 0
    moving = set.union(*f.open(k).values())
    inside = [n + 1 for n, loop in enumerate(f.loops) if loop.root in moving and f.is_serial(n)]
    return f.runs(max(inside, default=0))


def memory(f: Facts) -> Row:
    t = f.nest.target
    lane = f.lane_root
    return {
        "body_l1": log(f.footprint(f.inner) / t.l1_bytes),
        "step_l1": log(f.footprint(max(f.inner - 1, 0)) / t.l1_bytes),
        "tile_l1": log(f.footprint(f.held) / t.l1_bytes),
        "tile_l2": log(f.footprint(f.held) / t.l2_bytes),
        "task_l2": log(f.footprint(f.task) / t.l2_bytes),
        "task_l3": log(f.footprint(f.task) / t.l3_bytes),
        "store_run": log(f.result(f.task).run),
        "store_stride": min(f.c.out_stride(lane), 2) if lane else 0,
    }


def costs_of(f: Facts, lanes: int) -> Row:
    """Cycles of one core for each part, over the cycles of all multiply-adds on all cores."""
    threads, used = f.nest.target.threads, f.lanes_used(lanes)
    peak = f.flops / 2 / lanes / 2 / threads
    tasks = f.runs(f.task)
    wall = peak * threads * tasks / (ceil(tasks / threads) * threads)
    rows, _ = f.tile
    held, inner = f.runs(f.held), f.runs(f.inner)
    times = 1 if f.core.scope == "register" else 2
    cost: Row = {"multiply": f.flops / 4 / lanes / used / wall}
    cost["latency"] = cost["multiply"] * 8 / accumulators(f, lanes)
    cost["loads"] = sum(loads(f, k, lanes) for k in range(f.operands)) / wall
    cost["results"] = held * accumulators(f, lanes) * times / wall
    cost["loops"] = inner * 0.25 / wall
    cost["exits"] = f.runs(max(f.inner - 1, 0)) * 4 / wall
    cost["checks"] = 0.5 * rows * sum(checks(f, k) for k in range(f.operands)) / wall
    for cache, rate in (("l1", 128), ("l2", 64), ("l3", 24)):
        cost[cache] = sum(entering(f, n, cache) for n in range(f.operands + 1)) / rate / wall
    cost["packing"] = sum(packing(f, k, lanes, peak, wall) for k in range(f.operands))
    cost["waking"] = (3000 * (tasks > 1) + 20 * tasks / threads) / peak
    core = max(cost["multiply"], cost["loads"] / 2) + cost["latency"] / 2
    others = sum(s.flops for s in f.c.compute.stages if s.name != f.c.core.name)
    cost["stages"] = others / lanes / 2 / wall
    core += sum(cost[name] for name in ("results", "loops", "exits", "checks", "stages"))
    caches = [cost["l1"], cost["l2"], cost["l3"]]
    apart = cost["packing"] + cost["waking"]
    return cost | {
        "core": core, "total": core + sum(caches) + apart,
        "overlapped": max(core, *caches) + apart,
    }  # fmt: skip


def loads(f: Facts, k: int, lanes: int) -> float:
    """Cycles of an operand's loads into registers, two a cycle."""
    together = lane_kind(f, k) == 1
    each = lanes * f.lanes_used(lanes) if together else 1
    return f.runs(f.inner) * f.operand(k, f.inner).elements / each / 2


def lane_kind(f: Facts, k: int) -> int:
    stride = abs(f.c.stride(f.c.operands[k], f.lane_root)) if f.lane_root else 0
    return min(stride, 2 if f.packed_at(k) is None else 1)


def checks(f: Facts, k: int) -> int:
    """How often the windows of an operand that is not packed are looked at."""
    x = f.c.operands[k]
    moving = {a for e in x.index if len(e.terms) > 1 for a, _ in e.terms}
    if not moving or f.packed_at(k) is not None:
        return 0
    inside = [n + 1 for n, loop in enumerate(f.loops) if loop.root in moving and f.is_serial(n)]
    return f.runs(max(inside, default=0))


def entering(f: Facts, buffer: int, cache: str) -> float:
    """Bytes of a buffer that enter a cache: at the outermost loop whose share of it stays."""
    t = f.nest.target
    room = 0.7 * {"l1": t.l1_bytes, "l2": t.l2_bytes, "l3": t.l3_bytes}[cache]
    last = len(f.loops) if buffer < f.operands else f.held
    for level in range(last):
        mine = f.buffers(level)[buffer].bytes
        if mine + f.footprint(level + 1) <= room:
            return f.runs(level) * mine
    return f.runs(last) * f.buffers(last)[buffer].bytes


def packing(f: Facts, k: int, lanes: int, peak: float, wall: float) -> float:
    at = f.packed_at(k)
    if at is None or at == "load":
        return 0
    level = at if isinstance(at, int) else 0
    scattered = f.lane_root and abs(f.c.stride(f.c.operands[k], f.lane_root)) > 1
    copies = f.runs(level) * f.operand(k, level).elements / (1 if scattered else lanes)
    if at != "call":
        return 5 * copies / wall
    maker = f.nest.stage(f"{f.c.operands[k].tensor}.packed")
    together = any(x.kind == "parallel" for x in maker.loops)
    return 5 * copies / peak / (f.nest.target.threads if together else 1)


def operand(f: Facts, k: int, lanes: int) -> Row:
    x, at = f.operand(k, f.held), f.packed_at(k)
    threads, tasks = f.nest.target.threads, f.runs(f.task)
    peak = f.flops / 2 / lanes / 2 / threads
    wall = peak * threads * tasks / (ceil(tasks / threads) * threads)
    runs = {None: -2.0, "load": -1.0, "call": 0.0}
    return {
        "bytes": log(f.operand(k, 0).bytes), "element_bytes": element_bytes(f, k),
        "lane_kind": lane_kind(f, k),
        "pack_runs": log(f.runs(at)) if isinstance(at, int) else runs[at],
        "packed_at_load": at == "load",
        "cost_packing": log(packing(f, k, lanes, peak, wall)),
        "cost_loads": log(loads(f, k, lanes) / wall),
        "enters_l1": log(entering(f, k, "l1") / f.flops),
        "enters_l2": log(entering(f, k, "l2") / f.flops),
        "enters_l3": log(entering(f, k, "l3") / f.flops),
        "tile_reuse": log(f.flops / 2 / f.runs(f.held) / x.elements),
        "reuse_distance": distance(f, k), "tile_run": log(x.run),
        "tile_pages": log(x.bytes / max(64, x.run) * max(1, x.run / 4096)),
        "crowding": crowding(f, k), "step_stride": apart(f, k, f.inner),
        "tile_stride": apart(f, k, f.held),
        "task_share": log(f.operand(k, f.task).bytes / f.operand(k, 0).bytes),
        "padding": log(f.padding(k)),
    }  # fmt: skip


def element_bytes(f: Facts, k: int) -> int:
    return BYTES[f.c.compute.tensor(f.c.operands[k].tensor).dtype]


def distance(f: Facts, k: int) -> float:
    """Bytes between two uses of a tile's part, by the innermost loop around the registers."""
    for level in range(f.held, 0, -1):
        around, inside = f.operand(k, level - 1).bytes, f.operand(k, level).bytes
        if f.runs(level) * inside > 1.01 * f.runs(level - 1) * around:
            return log(f.footprint(level) / f.nest.target.l1_bytes)
    return log(f.footprint(0) / f.nest.target.l1_bytes)


def crowding(f: Facts, k: int) -> float:
    if f.packed_at(k) is not None:
        return 0
    x = f.c.operands[k]
    shares = [
        f.step(a.name, f.inner) * gcd(f.c.stride(x, a.name) * BYTES[x.dtype], 4096)
        for a in f.c.parallel
        if f.c.stride(x, a.name) and a.name != f.lane_root
    ]
    return min(4, max(shares, default=0) / f.nest.target.l1_bytes)


def apart(f: Facts, k: int, level: int) -> float:
    """Bytes from one iteration to the next of the loop around a level."""
    if level == 0:
        return 0
    root, x = f.loops[level - 1].root, f.c.operands[k]
    stride = abs(f.c.stride(x, root)) * BYTES[x.dtype]
    packed = stride and f.packed_at(k) is not None
    return log2(1 + (f.operand(k, level).bytes if packed else stride * f.step(root, level)))

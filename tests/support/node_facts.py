"""The loop tree of one nest, node by node, from the nest itself: the reference for arrays."""

from math import log2

from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.patterns.contraction import Contraction
from tests.support.nest_facts import Facts
from tests.support.row_facts import element_bytes, row_of

Node = dict[str, float]
"""Columns that are not zero, and the node's parent."""


def tree_of(c: Contraction, nest: LoopNest, lanes: int) -> dict[str, Node]:
    """Nodes by name: root, loop0 ..., pack0 ..., sum, epilogue; `parent` is a number of loops."""
    f = Facts(c, nest)
    nodes = {"root": _root(f, lanes), "sum": _level(f, len(f.loops)), "epilogue": _epilogue(f)}
    nodes["sum"] |= {"is_sum": 1, "parent": len(f.loops)}
    for k in range(len(f.loops)):
        nodes[f"loop{k}"] = _loop(f, k, lanes)
    for k in range(f.operands):
        at = f.packed_at(k)
        if at is not None and at != "load":
            level = at if isinstance(at, int) else 0
            x = f.operand(k, level)
            nodes[f"pack{k}"] = {
                "is_pack": 1, "parent": level, "runs": log(f.runs(level)),
                "padding": log2(f.padding(k)),
                f"operand{k}_bytes": log(x.bytes), f"operand{k}_run": log(x.run),
            }  # fmt: skip
    return nodes


def log(x: float) -> float:
    return log2(1 + x)


def _footprints(f: Facts, level: int) -> Node:
    t, size = f.nest.target, f.footprint(level)
    return {
        "footprint": log(size),
        "footprint_l1": log2(size / t.l1_bytes),
        "footprint_l2": log2(size / t.l2_bytes),
        "footprint_l3": log2(size / t.l3_bytes),
    }


def _named(f: Facts) -> list[str]:
    return [*(f"operand{k}" for k in range(f.operands)), "result"]


def _level(f: Facts, level: int) -> Node:
    node = {"runs": log(f.runs(level)), "flops": log(f.flops / f.runs(level))}
    for name, x in zip(_named(f), f.buffers(level), strict=True):
        node |= {f"{name}_bytes": log(x.bytes), f"{name}_run": log(x.run)}
    return node | _footprints(f, level)


def _root(f: Facts, lanes: int) -> Node:
    t, (rows, vectors) = f.nest.target, f.tile
    row, names = row_of(f.c, f.nest, lanes), ("core", "l1", "l2", "l3", "packing", "total")
    return _level(f, 0) | {
        "is_root": 1, "parent": -1, "element_bytes": BYTES[f.c.dtype],
        "is_float": is_float(f.c.dtype),
        "operand_bytes": min((element_bytes(f, k) for k in range(len(f.c.operands))), default=0),
        "vector_bytes": t.vector_bytes, "registers": t.vector_registers, "threads": t.threads,
        "register_share": (rows * vectors + vectors + 1) / t.vector_registers,
        "work": 0, "balance": row["balance"], "even": row["even"],
        "open_rows": row["open_rows"], "open_lanes": row["open_lanes"],
        **{f"cost_{name}": row[f"cost_{name}"] for name in names},
    }  # fmt: skip


def _epilogue(f: Facts) -> Node:
    handed = f.core.scope == "register"
    return {
        "is_epilogue": 1, "parent": f.split, "in_registers": handed,
        "runs": log(f.runs(f.split)), "flops": log(f.c.out.flops / f.runs(f.split)),
        "result_bytes": log(f.result(f.split).bytes),
    }  # fmt: skip


def _loop(f: Facts, k: int, lanes: int) -> Node:
    loop, times = f.loops[k], f.runs(k + 1) / f.runs(k)
    bordered = {
        kind: loop.kind == "serial" and loop.root in f.bordered(kind) for kind in ("clip", "peel")
    }
    node: Node = {
        f"is_{loop.kind}": 1, "parent": k,
        "is_reduction": loop.root in {r.name for r in f.c.reduce},
        "in_registers": k >= f.held, "clipped": bordered["clip"], "peeled": bordered["peel"],
        "prefetch": 2 if f.core.stream else bool(f.core.prefetch),
        "trips": log(times), "runs": log(f.runs(k)),
        "flops": log(f.flops / f.runs(k)), "code": log(f.unrolled(k)),
        "lanes_used": f.lanes_used(lanes) if loop.kind == "vectorize" else 0,
    }  # fmt: skip
    node |= _footprints(f, k)
    around, inside = f.buffers(k), f.buffers(k + 1)
    for n, name in enumerate(_named(f)):
        again = times * inside[n].bytes / around[n].bytes
        node |= {
            f"{name}_bytes": log(around[n].bytes),
            f"{name}_run": log(around[n].run),
            f"{name}_reuse": log2(max(again, 1)),
            f"{name}_distance": log(f.footprint(k + 1)) if again > 1.01 else 0,
            f"{name}_stride": log(_stride(f, k, n, inside[n].bytes)),
        }
    return node


def _stride(f: Facts, k: int, buffer: int, inside_bytes: float) -> float:
    """Bytes between what two neighbouring iterations begin at."""
    loop = f.loops[k]
    if buffer == f.operands:
        along = {a.name for a in f.c.parallel}
        elements = f.c.out_stride(loop.root) if loop.root in along else 0
        return abs(elements) * loop.step * BYTES[f.c.dtype]
    x = f.c.operands[buffer]
    apart = abs(f.c.stride(x, loop.root)) * loop.step * BYTES[x.dtype]
    return inside_bytes if apart and f.packed_at(buffer) is not None else apart

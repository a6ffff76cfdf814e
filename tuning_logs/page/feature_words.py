"""What cost models know of a nest, in sentences."""

from collections.abc import Mapping, Sequence

from hlotune.tuning_logs.page.regenerated import Correlated

NEST = {
    "work": "arithmetic beyond what the kernel states",
    "rows": "rows in the register tile",
    "vectors": "vectors side by side in the register tile",
    "register_share": "registers in use",
    "lanes_used": "lanes of vectors that hold results",
    "ragged": "raggedness of register tiles",
    "unrolled": "reduction steps that are written out",
    "code": "statements in the innermost body",
    "tasks": "tasks",
    "balance": "balance of the threads",
    "task_flops": "work in one task",
    "tile_flops": "work while a tile stays in registers",
    "tile_reduction": "terms added up while a tile stays in registers",
    "innermost_trips": "iterations of the innermost loop",
    "partial_sums": "times that a result enters registers",
    "handed_over": "results handed to the epilogue in registers",
    "clipped": "axes whose padding is left out",
    "peeled": "axes whose borders have bodies of their own",
    "prefetch": "prefetches",
    "reduces_lanes": "vectors that run along a reduction",
    "even": "evenness of the threads' work",
    "open_rows": "checked axes of operands",
    "open_lanes": "masked lanes",
    "open_checks": "checks of borders",
    "body_l1": "bytes that the innermost body touches",
    "step_l1": "bytes that the innermost loop touches",
    "tile_l1": "bytes touched while a tile stays in registers",
    "tile_l2": "bytes touched while a tile stays in registers",
    "task_l2": "bytes that one task touches",
    "task_l3": "bytes that one task touches",
    "store_run": "bytes of results that lie together",
    "store_stride": "distance between stored lanes",
    "cost_multiply": "estimated multiply-add time",
    "cost_latency": "estimated waiting for sums",
    "cost_loads": "estimated load time",
    "cost_results": "estimated traffic of sums in and out of registers",
    "cost_loops": "estimated loop overhead",
    "cost_exits": "estimated loop exits",
    "cost_checks": "estimated border checks",
    "cost_stages": "estimated time of the other stages",
    "cost_l1": "estimated traffic into L1",
    "cost_l2": "estimated traffic into L2",
    "cost_l3": "estimated traffic into L3",
    "cost_packing": "estimated packing time",
    "cost_waking": "estimated time of starting tasks",
    "cost_core": "estimated time in the core",
    "cost_total": "estimated time in all",
    "cost_overlapped": "estimated time where parts overlap",
}
"""Column of a nest to the name of what there is more or less of."""
OPERAND = {
    "bytes": "bytes",
    "element_bytes": "element size",
    "lane_kind": "scattering over the lanes",
    "pack_runs": "packing",
    "packed_at_load": "packing ahead, as the program is loaded",
    "cost_packing": "estimated packing time",
    "cost_loads": "estimated load time",
    "enters_l1": "traffic into L1",
    "enters_l2": "traffic into L2",
    "enters_l3": "traffic into L3",
    "tile_reuse": "reuse while a tile stays in registers",
    "reuse_distance": "distance between its uses",
    "tile_run": "contiguous bytes in a tile's part",
    "tile_pages": "pages that a tile's part lies on",
    "crowding": "crowding of its rows in sets of L1",
    "step_stride": "distance between neighbouring steps",
    "tile_stride": "distance between neighbouring tiles",
    "task_share": "share that one task reads",
    "padding": "padding of its copy",
}


def noun(column: str) -> str:
    """What a column counts; its own name where nobody has a word for it."""
    if column.startswith("operand"):
        number, _, rest = column.removeprefix("operand").partition("_")
        return f"{OPERAND.get(rest, rest)} of operand {number}"
    return NEST.get(column, column)


def correlations(found: Sequence[Correlated]) -> tuple[str, ...]:
    """A sentence for each feature by which the trials differ."""
    return tuple(
        f"Trials with more {noun(c.name)} were {'faster' if c.rank_correlation > 0 else 'slower'} "
        f"(rank correlation with the speed {c.rank_correlation:+.2f} over {c.trials} trials)."
        for c in found
    )


def facts(features: Mapping[str, float]) -> tuple[str, ...]:
    """What stands out of one nest; nothing of features that are not known."""
    if not features:
        return ()
    rows, vectors = features["rows"], features["vectors"]
    tasks, steps = 2.0 ** features["tasks"], 2.0 ** features["unrolled"]
    found = [
        f"The register tile has {rows:g} rows of {vectors:g} vectors and takes "
        f"{features['register_share']:.0%} of the registers; {features['lanes_used']:.0%} of the "
        "lanes hold results.",
        f"The work is divided into {tasks:.0f} tasks, which keep the threads busy for "
        f"{features['balance']:.0%} of the time.",
    ]
    if steps > 1.5:
        found.append(f"{steps:.0f} steps of the reduction are written out.")
    if features["handed_over"]:
        found.append("The epilogue reads the sums in registers.")
    if features["prefetch"]:
        found.append("The next part of an operand is prefetched.")
    return (*found, *_packs(features))


def _packs(features: Mapping[str, float]) -> tuple[str, ...]:
    found = []
    for number in range(3):
        runs, size = (features.get(f"operand{number}_{x}", 0.0) for x in ("pack_runs", "bytes"))
        if not size or runs <= -1.5:
            continue
        ahead = features.get(f"operand{number}_packed_at_load", 0.0)
        how = "as the program is loaded" if ahead else f"{max(1.0, 2.0**runs):.0f} times a call"
        found.append(f"Operand {number} is packed into panels {how}.")
    return tuple(found)

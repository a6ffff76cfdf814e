"""`tune kernels`: the kernels of a program, before any tuning."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hlotune.cli.loading import load_program
from hlotune.cli.options import ArgumentTypes, Json, Program
from hlotune.cli.printing import print_json, print_table, size

if TYPE_CHECKING:
    from hlotune.hlo.kernel import Kernel
    from hlotune.hlo.sites import Site
    from hlotune.schedules.target import Properties

EXAMPLE = "Example: tune kernels examples/resnet18.py:model"
COLUMNS = (
    "kernel", "label", ">sites", ">calls", ">sketches", ">configs", ">work", ">data", ">at best",
    "left to XLA because",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kernel.  Kernels may overlap: the same operation alone, and with what fuses into it."""

    key: str
    label: str
    sites: int
    calls: float
    """How often it runs in one run of the program."""
    sketches: int
    """Structures of ours; 0 where the kernel is left to XLA."""
    configs: float
    flops: int | None
    bytes: int
    """Of all arguments and results, each counted once."""
    roofline_s: float | None
    """The least time that this machine's measured peaks allow one call."""
    left_to_xla: str | None
    """Why no schedule of ours exists; None where one does."""


def kernels(program: Program, arg: ArgumentTypes = None, json: Json = False) -> None:
    """Lists the kernels of a program, with their work and data."""
    from hlotune.hlo.sites import sites
    from hlotune.schedules.errors import NoRecord
    from hlotune.tuning_logs.render import time_text

    loaded = load_program(program, arg)
    by_key: dict[str, list[Site]] = {}
    for site in sites(loaded):
        by_key.setdefault(site.kernel.key, []).append(site)
    if not by_key:
        raise NoRecord(f"program {loaded.name}: expected kernels, found none; XLA keeps all of it")
    peaks = measured_peaks()
    lines = [describe(group, peaks) for group in by_key.values()]
    if json:
        return print_json({"program": loaded.name, "kernels": [asdict(x) for x in lines]})
    rows = [
        (
            x.key[:8],
            x.label,
            str(x.sites),
            f"{x.calls:g}",
            str(x.sketches),
            f"{x.configs:.1e}" if x.configs else "-",
            size(x.flops, "FLOP"),
            size(x.bytes, "B", 1024),
            time_text(x.roofline_s) if x.roofline_s else "-",
            x.left_to_xla or "",
        )
        for x in lines
    ]
    return print_table(COLUMNS, rows, title=loaded.name)


def describe(sites: "list[Site]", peaks: "Properties") -> Line:
    from hlotune.hlo.canonical import graph_of

    kernel = sites[0].kernel
    graph = graph_of(kernel)
    ours = schedules_of(kernel)
    moved = sum(t.bytes for t in (*graph.argument_types, *graph.result_types))
    return Line(
        key=kernel.key,
        label=sites[0].label,
        sites=len(sites),
        calls=sum(site.weight for site in sites),
        sketches=ours.sketches,
        configs=ours.configs,
        flops=ours.flops,
        bytes=moved,
        roofline_s=roofline_s(ours.flops or 0, moved, ours.dtype, peaks),
        left_to_xla=ours.reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What we can do with a kernel: the size of its space, or why there is none."""

    sketches: int = 0
    configs: float = 0.0
    flops: int | None = None
    dtype: str = "f32"
    reason: str | None = None


def schedules_of(kernel: "Kernel") -> Ours:
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.to_compute import compute_of
    from hlotune.measure.targets import host_target
    from hlotune.schedules.errors import UnsupportedKernel
    from hlotune.schedules.flops import arithmetic_type, flops_of
    from hlotune.schedules.spaces import space_of

    try:
        compute = compute_of(graph_of(kernel))
        space = space_of(compute, host_target())
    except UnsupportedKernel as error:
        return Ours(reason=str(error))
    return Ours(
        sketches=len(space.sketches),
        configs=space.size,
        flops=flops_of(compute),
        dtype=arithmetic_type(compute),
    )


def measured_peaks() -> "Properties":
    """Of this machine, with no tuner at work on it."""
    from hlotune.measure.peaks import host_properties
    from hlotune.measure.sharing import alone
    from hlotune.measure.targets import host_target

    with alone():
        return host_properties(host_target())


def roofline_s(flops: int, moved_bytes: int, dtype: str, peaks: "Properties") -> float | None:
    """Seconds that the measured peaks allow; None where there is no peak of the type.

    Data that fits into the last cache may stand there, so that memory sets no limit.
    """
    from hlotune.measure.targets import host_target

    if dtype not in peaks.flops_per_s:
        return None
    fits = moved_bytes <= host_target().l3_bytes
    memory_s = 0.0 if fits else moved_bytes / peaks.read_bytes_per_s
    return max(flops / peaks.flops_per_s[dtype], memory_s)

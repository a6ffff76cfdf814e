"""`tune kernels`: the kernels of a program, before any tuning."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hlotune.cli.options import ArgumentTypes, Json, Program
from hlotune.cli.printing import print_json, print_table, size

if TYPE_CHECKING:
    from hlotune.hlo.kernel import Kernel
    from hlotune.hlo.sites import Site

EXAMPLE = "Example: tune kernels examples/resnet18.py:model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kernel.  Kernels may overlap: the same operation alone, and with what fuses into it."""

    key: str
    label: str
    sites: int
    calls: float
    """How often it runs in one run of the program."""
    flops: int | None
    bytes: int
    """Of all arguments and results, each counted once."""
    left_to_xla: str | None
    """Why no schedule of ours exists; None where one does."""


def kernels(program: Program, arg: ArgumentTypes = None, json: Json = False) -> None:
    """Lists the kernels of a program, with their work and data."""
    from hlotune.hlo.program import load
    from hlotune.hlo.sites import sites
    from hlotune.schedules.errors import NoRecord

    loaded = load(program, argument_types=arg or ())
    by_key: dict[str, list[Site]] = {}
    for site in sites(loaded):
        by_key.setdefault(site.kernel.key, []).append(site)
    if not by_key:
        raise NoRecord(f"program {loaded.name}: expected kernels, found none; XLA keeps all of it")
    lines = [describe(group) for group in by_key.values()]
    if json:
        return print_json({"program": loaded.name, "kernels": [asdict(x) for x in lines]})
    rows = [
        (
            x.key[:8],
            x.label,
            str(x.sites),
            f"{x.calls:g}",
            size(x.flops, "FLOP"),
            size(x.bytes, "B", 1024),
            x.left_to_xla or "",
        )
        for x in lines
    ]
    columns = ["kernel", "label", ">sites", ">calls", ">work", ">data", "left to XLA because"]
    return print_table(columns, rows, title=loaded.name)


def describe(sites: "list[Site]") -> Line:
    from hlotune.hlo.canonical import graph_of

    kernel = sites[0].kernel
    graph = graph_of(kernel)
    flops, reason = arithmetic(kernel)
    return Line(
        key=kernel.key,
        label=sites[0].label,
        sites=len(sites),
        calls=sum(site.weight for site in sites),
        flops=flops,
        bytes=sum(t.bytes for t in (*graph.argument_types, *graph.result_types)),
        left_to_xla=reason,
    )


def arithmetic(kernel: "Kernel") -> tuple[int | None, str | None]:
    """Operations of one call, none on padding; or why we have no schedule."""
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.to_compute import compute_of
    from hlotune.schedules.errors import UnsupportedKernel
    from hlotune.schedules.flops import flops_of

    try:
        return flops_of(compute_of(graph_of(kernel))), None
    except UnsupportedKernel as error:
        return None, str(error)

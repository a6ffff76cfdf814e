"""`tune kernels`: the kernels of a program, their work, and what a database knows of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hlotune.cli.kernel_details import counts_json, measured, operations_of, print_counts
from hlotune.cli.kernel_limits import Limits, Ours, limit_s, limits_of, schedules_of
from hlotune.cli.loading import load_program
from hlotune.cli.options import ArgumentTypes, Dimensions, Json, Program, Trips
from hlotune.cli.printing import counted, print_json, print_notes, print_table, say, size, times

if TYPE_CHECKING:
    from hlotune.cli.kernel_details import Times
    from hlotune.hlo.calling.operation_counts import Counts
    from hlotune.hlo.frontends.program import Program as LoadedProgram
    from hlotune.hlo.sites.sites import Site
    from hlotune.hlo.sites.trip_counts import Flow
    from hlotune.schedules.targets.target import Target
    from hlotune.tuning_logs.database import Conditions, Database

EXAMPLE = "Example: tune kernels examples/resnet18.py:model"
COLUMNS = (
    "kernel", "label", ">sites", ">calls", ">sketches", ">configs", ">work", ">data", ">at best",
    "left to XLA because",
)  # fmt: skip
TIMED = (">alone on XLA", ">of the time")
ALONE = (
    "kernels are timed alone, without the empty call around them, and overlap: the shares are no "
    "parts of one whole"
)
SPARE = ("sketches", "configs", "sites", "data", "work", "calls", "kernel")
"""Columns that a narrow terminal leaves out, in the order in which they go."""
Named = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="A device, here or not (cuda:a100, cuda:h100, cuda:h200, tpu:v5e, tpu:v6e): its "
        "schedules, and times at best by its maker's figures.  [default: this machine's CPU]",
        show_default=False,
    ),
]
Records = Annotated[
    Path | None,
    typer.Option(
        "--database",
        "--db",
        metavar="FILE",
        help="Tuning database: also says what it knows of each kernel.  [default: none]",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The records of a kernel in a database, of this machine and for standard numerics."""

    trials: int
    """The number of trials of our candidates."""
    decision: str | None = None
    """`tuned` or `kept xla`; None where no comparison with the default is recorded."""
    speedup: float = 1.0
    """The speedup of the code that `apply` uses: 1 unless tuned."""
    default_error: float = 0.0
    """The error of XLA's own result, in units of the tolerance: above 1 it is wrong."""
    used_s: float | None = None
    """Seconds per call of the code that `apply` uses; None where no comparison is recorded."""

    def __str__(self) -> str:
        from hlotune.tuning_logs.wrong_defaults import is_wrong, wrong_text

        wrong = f"; {wrong_text(self.default_error)}" if is_wrong(self.default_error) else ""
        return f"{self._decided()}{wrong}"

    def _decided(self) -> str:
        if self.decision is None:
            return counted(self.trials, "trial") if self.trials else "-"
        return f"tuned {times(self.speedup)}" if self.decision == "tuned" else self.decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kernel.  Kernels may overlap: one may be an operation alone, another a fusion with it."""

    key: str
    label: str
    sites: int
    calls: float
    """The number of calls of the kernel in one run of the program."""
    sketches: int
    """The number of our sketches; 0 where the kernel is left to XLA."""
    configs: float
    flops: int | None
    bytes: int
    """Bytes of all arguments and results, each counted once."""
    roofline_s: float | None
    """The fewest seconds that the device's peaks allow for one call; None if unknown."""
    left_to_xla: str | None
    """The reason why we have no schedule for it; None where we have one."""
    known: Known | None
    """The records of the kernel; None where no database was named."""
    default_s: float | None = None
    """Seconds per call of the kernel alone, as XLA compiles it; None where not measured."""
    share_of_time: float | None = None
    """The share of the program's time that all calls of the kernel take; None where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that the command prints of one program."""

    program: "LoadedProgram"
    lines: Sequence[Line]
    control_flow: "Sequence[Flow]"
    left_out: Sequence[str]
    """The reasons why XLA keeps the operations of no kernel."""
    counts: "Counts | None"
    """Operations before and after XLA optimizes the program; None where nobody asked."""
    spent: "Times | None"
    """Times of the kernels alone, as XLA compiles them; None where nobody asked."""

    def to_json(self) -> dict[str, Any]:
        return {
            "program": self.program.name,
            "notes": list(self.program.remarks),
            "control_flow": [flow._asdict() for flow in self.control_flow],
            "left_out": list(self.left_out),
            **({"operations": counts_json(self.counts)} if self.counts else {}),
            **({"default_s": self.spent.program_s} if self.spent else {}),
            "kernels": [asdict(line) for line in self.lines],
        }


Operations = Annotated[
    bool,
    typer.Option(
        "--operations", help="Count operations before and after XLA optimizes the program."
    ),
]
Time = Annotated[
    bool,
    typer.Option(
        "--time", help="Time each kernel alone, as XLA compiles it: its share of the program's."
    ),
]


def kernels(
    program: Program,
    database: Records = None,
    target: Named = None,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    trips: Trips = None,
    operations: Operations = False,
    time: Time = False,
    json: Json = False,
) -> None:
    """Lists the kernels of a program, with their work and data.

    What a call takes at best is by the machine's peaks, which are measured once a day, or by the
    maker's figures of the device that is named.
    """
    from hlotune.schedules.targets.kinds import named_target

    device = named_target(target) if target else None
    loaded = load_program(program, arg, dim, trips)
    counts = operations_of(loaded) if operations else None
    if counts and not json:
        print_counts(counts)
    listing = replace(listed(loaded, database, device, is_timed=time), counts=counts)
    if json:
        return print_json(listing.to_json())
    known = any(line.known is not None for line in listing.lines)
    return print_listing(listing, with_records=known)


def listed(
    loaded: "LoadedProgram", database: Path | None, device: "Target | None", *, is_timed: bool
) -> Listing:
    """The kernels of a program, without counts of operations."""
    from hlotune.hlo.sites.left_out import left_out
    from hlotune.hlo.sites.sites import sites
    from hlotune.hlo.sites.trip_counts import flows

    found = sites(loaded)
    by_key = sites_by_kernel(loaded, found)
    # Before the peaks: these take seconds.
    records = known_of(database, by_key, device) if database else {}
    limits = limits_of(device)
    lines = [describe(group, limits, records.get(key)) for key, group in by_key.items()]
    spent = None
    if is_timed:
        spent = measured(loaded, {key: group[0].kernel for key, group in by_key.items()})
        lines = [with_times(line, spent) for line in lines]
    return Listing(
        program=loaded,
        lines=lines,
        control_flow=list(flows(loaded.graph, loaded.trips).values()),
        left_out=left_out(loaded, found),
        counts=None,
        spent=spent,
    )


def sites_by_kernel(program: "LoadedProgram", found: "Sequence[Site]") -> "dict[str, list[Site]]":
    """The sites of each kernel, by its key.  Raises NoRecord where a program has no kernel."""
    from hlotune.hlo.sites.left_out import left_out
    from hlotune.schedules.errors import NoRecord

    by_key: dict[str, list[Site]] = {}
    for site in found:
        by_key.setdefault(site.kernel.key, []).append(site)
    if not by_key:
        why = "".join(f"; {text}" for text in left_out(program, found))
        raise NoRecord(
            f"program {program.name}: expected kernels, found none; XLA keeps all of it{why}"
        )
    return by_key


def print_listing(x: Listing, *, with_records: bool) -> None:
    from hlotune.tuning_logs.render import time_text

    print_notes(x.program.remarks)
    columns = [*COLUMNS, *TIMED] if x.spent else list(COLUMNS)
    columns += [">of the limit", "known"] if with_records else []
    rows = [cells(line, x.spent is not None) for line in x.lines]
    print_table(columns, rows, title=x.program.name, spare=SPARE)
    if x.spent:
        say(f"a call of the program takes {time_text(x.spent.program_s)}; {ALONE}")
    for text in x.left_out:
        say(f"left to XLA: {text}")
    for flow in x.control_flow:
        say(flow_text(flow))


def timed_cells(x: Line, timed: bool) -> list[str]:
    from hlotune.tuning_logs.render import time_text

    if not timed:
        return []
    if x.default_s is None or x.share_of_time is None:
        return ["-", "-"]
    return [time_text(x.default_s), f"{x.share_of_time:.1%}"]


def cells(x: Line, timed: bool = False) -> tuple[str, ...]:
    """A row of the table; the last two cells are there where a database was named."""
    from hlotune.tuning_logs.render import time_text

    return (
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
        *timed_cells(x, timed),
        *([share_text(x), str(x.known)] if x.known else []),
    )


def with_times(line: Line, spent: "Times") -> Line:
    found_s, share = spent.kernels_s.get(line.key), spent.share(line.key, line.calls)
    return replace(line, default_s=found_s, share_of_time=share)


def flow_text(flow: "Flow") -> str:
    """A line like `while0 runs 12 times (its counter)`."""
    name, runs, why = flow
    if name.startswith("while"):
        if why == "not evident":
            return f"{name} counts as running once: its trips are not evident (--trips {name}=N)"
        return f"{name} runs {runs[0]:g} times ({why})"
    shares = " : ".join(f"{share:.2g}" for share in runs)
    how = f"not evident: --trips {name}=A,B" if why == "not evident" else why
    return f"{name} takes its branches {shares} ({how})"


def share_text(line: Line) -> str:
    """The least time as a percentage of the time of the code that `apply` uses, or `-`."""
    used_s = line.known.used_s if line.known else None
    return f"{line.roofline_s / used_s:.0%}" if line.roofline_s and used_s else "-"


def known_of(path: Path, keys: Iterable[str], device: "Target | None") -> dict[str, Known]:
    """The records of each kernel, by key.  Raises DatabaseError where there is no database."""
    from hlotune.measure.machine.targets import host_target, toolchain
    from hlotune.tuning_logs.database import Database, conditions

    under = conditions(device or host_target(), toolchain())
    with Database(path, read_only=True) as database:
        return {key: known(database, key, under) for key in keys}


def known(database: "Database", key: str, under: "Conditions") -> Known:
    from hlotune.tuning_logs.decisions import candidates_tried, decision
    from hlotune.tuning_logs.wrong_defaults import latest_default_error

    trials, final = candidates_tried(database, key, under), decision(database, key, **under).final
    found = Known(trials=trials, default_error=latest_default_error(database, key, **under))
    if final is None:
        return found
    if not final.won:
        return replace(found, decision="kept xla", used_s=final.paired.default_time_s)
    return replace(
        found,
        decision="tuned",
        speedup=final.paired.speedup,
        used_s=final.paired.tuned_time_s,
    )


def describe(sites: "list[Site]", limits: Limits, known: Known | None) -> Line:
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.sites.tiny import tiny

    kernel = sites[0].kernel
    graph = graph_of(kernel)
    if reason := tiny(sites[0], limits.target):
        ours = Ours(reason=reason)
    else:
        ours = schedules_of(kernel, limits.target)
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
        roofline_s=limit_s(kernel, limits.peaks, ours, limits.target),
        left_to_xla=ours.reason,
        known=known,
    )

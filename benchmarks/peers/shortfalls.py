"""The cases that fall short of what was set out to reach, each with why, and its inner loop.

    python -m benchmarks.peers.shortfalls --database build/peers.db

From passes and records alone: nothing is timed.  The loops come into `docs/lab/inner_loops.md`.
What a loop takes at least is a count (`benchmarks/ports.py`); the time beyond it went into memory,
borders, other stages and the start of threads.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, FROZEN
from benchmarks.command import command
from benchmarks.inner_loop import InnerLoop, compact, inner_loop, summary
from benchmarks.peers.contestants import contestants
from benchmarks.peers.passes import kept
from benchmarks.peers.records import record
from benchmarks.peers.roofs import FMA
from benchmarks.peers.table import LEVEL, Row, all_rows, conditions_of
from benchmarks.ports import core_of, has_core
from benchmarks.results import Table, described, milliseconds, publish
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import CacheMode
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.cpu import CpuTarget

DIRECT_SHARES = ((200e6, 0.94), (60e6, 0.90), (20e6, 0.80))
"""The share of the peak that a kernel of at least so many operations is to reach."""
FAST_SHARES = {("C2", "constants"): 2.5, ("C6", "constants"): 2.5, ("C9", "constants"): 2.5}
"""The share of the peak to reach where an algorithm does less work than the mathematics has."""
READ_SHARE = 0.90
"""The share of the bandwidth to reach where memory limits."""
NARROW_GAIN = {"gemm_1024_bf16": ("gemm_1024", 1.6)}
"""At least so many times as fast as another case."""
NO_CORE = "nothing is known of this processor's core"
NO_LOOP = "no innermost loop of its machine code multiplies and adds"
PAGE = Path("docs/lab/inner_loops.md")
HEAD = """# Inner loops of the rows that fall short

Written by `python -m benchmarks.peers.shortfalls`, whose table is in
[peers.md](peers.md): of each row the innermost loop that does most of the arithmetic.
Operands are in AT&T's order, the destination last; neighbours of one name share a line.
`python -m benchmarks.inner_loop C6` prints a loop whole.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    row: Row
    reasons: tuple[str, ...]
    loop: InnerLoop | str
    """Or why there is none."""


def reasons(row: Row) -> Iterator[str]:
    """Why a row falls short of what it should reach by itself; nothing where it does not."""
    if not row.won:
        yield row.status
    if row.over_peer and row.over_peer.median < LEVEL:
        yield f"{row.over_peer.median:.2f} of {row.peer}"
    wanted = wanted_share(row)
    if row.won and row.share is not None and row.share < wanted:
        yield f"{row.share:.0%} of {wanted:.0%} ({row.roof})"


def wanted_share(row: Row) -> float:
    """The share of its roof that a row is to reach; 0 where none was set."""
    operation = CASES[row.case]
    if operation.element != "f32":
        return 0.0
    if row.roof != FMA:
        return READ_SHARE
    if found := FAST_SHARES.get((row.case, row.weights)):
        return found
    return next((share for flops, share in DIRECT_SHARES if operation.flops >= flops), 0.0)


def narrow(rows: Sequence[Row]) -> Iterator[tuple[Row, str]]:
    """Rows of narrow elements that gain too little over the same in f32."""
    seconds = {(r.case, r.weights): r.ours_s for r in rows}
    for row in rows:
        other, wanted = NARROW_GAIN.get(row.case, ("", 0.0))
        wide_s = seconds.get((other, row.weights))
        if wide_s and row.won and wide_s / row.ours_s < wanted:
            yield row, f"{wide_s / row.ours_s:.2f} of {wanted:g} times {other}"


def short_of(rows: Sequence[Row]) -> dict[int, list[str]]:
    """The places of rows that fall short, and why; what was not tuned is not judged."""
    found = {place: list(reasons(r)) for place, r in enumerate(rows) if r.status != "not tuned"}
    for row, why in narrow(rows):
        found[rows.index(row)].append(why)
    return {place: why for place, why in found.items() if why}


def loop_of(row: Row, database: Path, target: CpuTarget, cache: CacheMode) -> InnerLoop | str:
    """The innermost loop of what is recorded now, or why there is none."""
    found = record(row.case, row.weights, database, target, cache)
    if found.schedule == DEFAULT:
        return found.reason
    if not has_core(target):
        return NO_CORE
    return inner_loop(found.kernel, found.schedule, target) or NO_LOOP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--database", type=Path, default=Path("build/peers.db"))
    add("--cache", choices=("model", "warm"), default="warm", help="what hlotune was tuned for")
    add("--loops", type=Path, default=PAGE, help="a file for the loops' assembly")
    options = parser.parse_args()
    target = host_target()
    passes = {case: found for case in CASES if (found := kept(case))}
    if not passes:
        parser.error("expected passes, got none; run benchmarks.peers")
    rows = all_rows(passes, contestants(options.database), target)
    short = [
        Short(row=rows[n], reasons=tuple(why),
              loop=loop_of(rows[n], options.database, target, options.cache))
        for n, why in short_of(rows).items()
    ]  # fmt: skip
    under = conditions_of(passes)
    clock_hz = clock(under["peak_flop_per_s"]["f32"], target)
    judged = sum(r.status != "not tuned" for r in rows)
    publish(table(short, judged, clock_hz), under, [])
    options.loops.write_text(page(short, clock_hz, under), encoding="utf-8")
    print(f"loops are in {options.loops}")


def clock(peak_flop_per_s: float, target: CpuTarget) -> float | None:
    """The clock at which the cores reach the peak of f32 in vectors of full width.

    None where nothing is known of the processor's core.
    """
    if not has_core(target):
        return None
    lanes = target.vector_bytes // 4
    return peak_flop_per_s / target.threads / (core_of(target).multiply_adds * lanes * 2)


def table(found: Sequence[Short], judged: int, clock_hz: float | None) -> Table:
    columns = [
        "case", "weights", "falls short", ">hlotune ms", "algorithm", ">FMAs", ">loads",
        ">shuffles", ">stores", ">spills", ">cycles", "for", ">ms at that rate",
    ]  # fmt: skip
    share = f"{len(found) / judged:.0%}" if judged else "none"
    notes = [
        f"{len(found)} of {judged} rows fall short, {share}",
        "a pass of the innermost loop that does most of the work; cycles: at least so many, by the "
        f"places of a core at {clock_hz / 1e9:.2f} GHz; ms: if all arithmetic went so"
        if clock_hz
        else f"{NO_CORE}, so that no cycles are counted",
    ]
    if any(CASES[s.row.case].element != "f32" for s in found):
        notes.append("bf16 and int8: no shares of a peak were set out for them, as for f32")
    return Table(
        name="shortfalls", columns=columns, rows=[cells(s, clock_hz) for s in found],
        notes=[*notes, *without_loops(found)],
    )  # fmt: skip


def without_loops(found: Sequence[Short]) -> Iterator[str]:
    """A line for each reason why rows have none, but for the one that holds for all of them."""
    places: dict[str, list[str]] = {}
    for short in found:
        if isinstance(short.loop, str) and short.loop != NO_CORE:
            places.setdefault(short.loop, []).append(short.row.place)
    return (f"no loop of {', '.join(named)}: {why}" for why, named in places.items())


def cells(short: Short, clock_hz: float | None) -> list[str]:
    row, loop = short.row, short.loop
    start = [row.case, row.weights, "; ".join(short.reasons), milliseconds(row.ours_s)]
    if isinstance(loop, str) or clock_hz is None:
        return [*start, "-", *["-"] * 8]
    counts = loop.count
    numbers = [counts.multiply_adds, counts.loads, counts.shuffles, counts.stores, counts.spills]
    return [
        *start, loop.algorithm, *map(str, numbers), f"{loop.least_cycles:.1f}", loop.limit,
        milliseconds(loop.least_s(clock_hz)),
    ]  # fmt: skip


def page(found: Sequence[Short], clock_hz: float | None, under: Mapping[str, Any]) -> str:
    """Loops as a page of text; of those that are the same in all but names, the first."""
    parts, seen = [HEAD, f"{described(under)}.\n"], dict[tuple[str, ...], str]()
    for short in found:
        name = short.row.case + (FROZEN if short.row.weights == "constants" else "")
        parts += [f"## {name}", "", "; ".join(short.reasons), ""]
        if isinstance(short.loop, str) or clock_hz is None:
            parts += [f"No loop: {short.loop if isinstance(short.loop, str) else NO_CORE}.", ""]
            continue
        lines = compact(short.loop.loop.body)
        first = seen.setdefault(tuple(i.text for i in short.loop.loop.body[:-1]), name)
        body = lines if first == name else [f"the loop of {first}"]
        parts += ["```", summary(short.loop, clock_hz), "", *body, "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    command(main)

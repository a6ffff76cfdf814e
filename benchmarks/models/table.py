"""The tables of all models that were measured: what each gained, and the runtimes side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from benchmarks import tracked
from benchmarks.models import kept
from benchmarks.models.contestants import OURS, TITLES
from benchmarks.models.examples import EXAMPLES
from benchmarks.models.kept import Line
from benchmarks.models.networks import NETWORKS
from benchmarks.models.paper import ROWS, paper_table
from benchmarks.results import Table, geometric_mean, milliseconds, proven

NAME = "models"
NEAR = 1.03
"""A time within it of another is level with it."""
Verdict = Literal["ahead", "level", "behind", "no peer", "failed"]
_COLUMNS = [
    "model", ">XLA ms", ">hlotune ms", ">XLA / hlotune", ">95 %", "proven", "best peer",
    ">peer ms", ">peer / hlotune", "verdict", ">goal ms", ">kernels won", ">trials", ">tuner s",
    ">error",
]  # fmt: skip


def verdict(line: Line) -> Verdict:
    """How ours stands to the best peer."""
    if OURS not in line.timed:
        return "failed"
    ratio = line.over_ours(line.best_peer)
    if ratio is None:
        return "no peer"
    if ratio.median > NEAR:
        return "ahead"
    return "level" if ratio.median >= 1 / NEAR else "behind"


def measured(folder: Path) -> Iterator[tuple[Table, Mapping[str, Any], list[Line]]]:
    """The tables of each kind of core that has results there, with their conditions and lines."""
    for core, path in tracked.cores(NAME, folder):
        for table, lines in tables(kept.lines(path, EXAMPLES)):
            named = replace(table, name=f"{table.name}_{core}")
            yield named, tracked.spanning([x.conditions for x in lines]), lines


def tables(lines: Sequence[Line]) -> list[tuple[Table, list[Line]]]:
    """All tables that have a row, each with the lines that it is of."""
    gains = Table(name=NAME, columns=_COLUMNS, rows=[cells(x) for x in lines], notes=notes(lines))
    networks = [x for x in lines if x.model in NETWORKS]
    of_paper = [x for x in lines if x.model in ROWS]
    found = [
        (gains, [*lines]), (peers_table(networks), networks), (paper_table(of_paper), of_paper)
    ]  # fmt: skip
    return [(table, its) for table, its in found if table.rows]


def cells(line: Line) -> tuple[str, ...]:
    xla, peer = line.over_ours(line.default), line.over_ours(line.best_peer)
    goal_s = EXAMPLES[line.model].goal_s
    tuning = line.tuning
    return (
        line.model,
        milliseconds(line.time_s(line.default)) if line.default else "-",
        milliseconds(line.time_s(OURS)),
        f"{xla.median:.2f}" if xla else "-",
        f"{xla.low:.2f} to {xla.high:.2f}" if xla and isfinite(xla.high) else "-",
        (proven(xla) if isfinite(xla.high) else "too few turns") if xla else "-",
        TITLES[line.best_peer] if line.best_peer else "-",
        milliseconds(line.time_s(line.best_peer)) if line.best_peer else "-",
        f"{peer.median:.2f}" if peer else "-",
        verdict(line),
        milliseconds(goal_s),
        f"{tuning.won} of {tuning.kernels}",
        str(tuning.trials),
        f"{tuning.wall_s:.0f}",
        f"{line.errors[OURS]:.1g}" if OURS in line.errors else "-",
    )


def notes(lines: Sequence[Line]) -> list[str]:
    budgets = sorted({x.tuning.seconds for x in lines})
    found = [
        "blocking calls, medians of turns of all in one run; XLA is its better form, weights as "
        "constants or as arguments; ratios are of turns of one round",
        f"{' or '.join(f'{s:g}' for s in budgets)} s of tuning a model, from an empty database; "
        "trials are those of searches, without first candidates that were compared at once; "
        "error: the largest difference from XLA's result, of its largest element, and of a "
        "training step the norm",
    ]
    found += [
        f"{x.model}: XLA's own results move by {x.moved:.1g} where its inputs do by one rounding"
        for x in lines
        if x.moved is not None
    ]
    found += [
        f"geometric mean over {what}: {mean:.2f} times" for what, mean in means(lines).items()
    ]
    return found


def means(lines: Sequence[Line]) -> Mapping[str, float]:
    """The geometric means of what ours is over XLA and over the best peers."""
    xla = [r.median for x in lines if (r := x.over_ours(x.default))]
    peers = [r.median for x in lines if (r := x.over_ours(x.best_peer))]
    found = {f"XLA, {len(xla)} models": xla, f"the best peer, {len(peers)} models": peers}
    return {what: geometric_mean(ratios) for what, ratios in found.items() if ratios}


def peers_table(lines: Sequence[Line]) -> Table:
    """A row for each runtime, a column for each model."""
    labels = [t for t in TITLES if any(t in x.timed or t in x.refused for x in lines)]
    rows = [[TITLES[t], *(standing(x, t) for x in lines)] for t in labels]
    return Table(
        name="models_peers",
        columns=["ms", *(f">{x.model}" for x in lines)],
        rows=rows,
        notes=[
            "f32, two threads, batch 1 (mlp: 1000), weights as constants but where a row says "
            "otherwise; the median of the turns, then the best turn",
            said_versions(lines),
            *(f"{x.model}: largest error {said_errors(x)}" for x in lines if x.errors),
            *reasons(lines),
        ],
    )


def standing(line: Line, label: str) -> str:
    if label not in line.timed:
        return "-"
    return f"{milliseconds(line.time_s(label))} / {milliseconds(line.timed[label].best_s)}"


def said_versions(lines: Sequence[Line]) -> str:
    found: dict[str, str] = {}
    for x in lines:
        found |= x.conditions["versions"]
    return "versions: " + ", ".join(f"{name} {version}" for name, version in found.items())


def said_errors(line: Line) -> str:
    label = max(line.errors, key=lambda k: line.errors[k])
    return f"{line.errors[label]:.1g} of {TITLES[label]}, hlotune's {line.errors.get(OURS, 0):.1g}"


def reasons(lines: Sequence[Line]) -> list[str]:
    """Why an entry has no time, why tuning failed, and what entries say of themselves."""
    found = []
    for x in lines:
        if x.tuning.failure:
            found.append(f"{x.model}: tuning failed: {x.tuning.failure}")
        found += [f"{x.model}: {TITLES[label]}: {note}" for label, note in x.notes.items()]
        found += [
            f"{x.model}: {TITLES[label]}: {why}" for label, why in x.refused.items()
            if not why.startswith("unsupported")
        ]  # fmt: skip
    return found


def said(line: Line) -> str:
    """One model in one line."""
    times = (f"{TITLES[k]} {standing(line, k)}" for k in TITLES if k in line.timed)
    return f"{line.model}: {', '.join(times)}; {verdict(line)}"

"""The tables of `docs/models.md`, from what `tune model eval --json` wrote (`make bench-eval`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf, nan
from statistics import mean
from typing import Any

from benchmarks.results import Table
from hlotune.cli.model import MEANS, TIMES, means
from hlotune.costmodel.ranking_quality import Quality
from hlotune.search.learning.train_and_evaluate import By, Judged

KERNELS, FAMILIES, AIMED = "model_eval", "model_eval_families", "model_aims"
"""Names of the tables.  The first two are those of the files too: with kernels held out of known
families, and with whole families."""


@dataclass(frozen=True, slots=True)
class Aim:
    words: str
    least: str
    file: str
    by: By
    column: str
    trials: int = 0
    """The trials of a kernel, in the mean: with fewer the figure would mean something else."""


AIMS = (
    Aim("pairs, all trials", "0.87", KERNELS, "all trials", ">pairs"),
    Aim("pairs, 300 of all", "0.87", KERNELS, "300 of all", ">pairs"),
    Aim("recall@30, 300 of all", "0.65", KERNELS, "300 of all", ">@30"),
    Aim("pairs, drawn at random", "-", KERNELS, "at random", ">pairs"),
    Aim("recall@30 of 300 at random", "-", KERNELS, "at random", ">@30", trials=250),
    Aim("recall@30 of all trials", "-", KERNELS, "all trials", ">@30"),
    Aim("fastest quarter, all trials", "0.70", KERNELS, "all trials", ">fastest quarter"),
    Aim("families held out: pairs, all trials", "0.80", FAMILIES, "all trials", ">pairs"),
    Aim("the worst kernel of these, no less than", "0.68", FAMILIES, "all trials", ">worst pairs"),
    Aim("the worst kernel of these, drawn at random", "-", FAMILIES, "at random", ">worst pairs"),
)
"""The aims for the trees."""
BEHIND = ("TreeGRU behind the trees in pairs, at most", "0.02")


def tables(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Table]:
    """The tables that can be made of the files that there are, by their names."""
    lines = {name: [judged_of(data) for data in file] for name, file in found.items()}
    made = [figures(name, of) for name, of in lines.items()]
    return [*made, aims(lines)] if lines.keys() >= {KERNELS, FAMILIES} else made


def judged_of(data: Mapping[str, Any]) -> Judged:
    """One kernel of a file, where null is no number, and of the regret an infinite one."""
    values = {f.name: data[f.name] for f in fields(Quality)}
    values = {k: nan if value is None else value for k, value in values.items()}
    if data["top1_regret"] is None:
        values["top1_regret"] = inf
    known: dict[str, Any] = {f.name: data[f.name] for f in fields(Judged) if f.name in data}
    known |= {"curve": tuple(data["curve"]), "quality": Quality(**values)}
    return Judged(**known)


def figures(name: str, lines: Sequence[Judged]) -> Table:
    """The means that the command prints, without what depends on the hour: seconds and rates."""
    rows = [[*names, *cells[: -len(TIMES)]] for names, cells in means(lines)]
    return Table(name=name, columns=["model", *MEANS[1 : -len(TIMES)]], rows=rows)


def aims(lines: Mapping[str, Sequence[Judged]]) -> Table:
    machines = list(dict.fromkeys(x.machine for x in lines[KERNELS]))
    rows = [
        [a.words, a.least, *(figure(a, lines[a.file], m, "trees") for m in machines)] for a in AIMS
    ]
    rows.append([*BEHIND, *(behind(lines[KERNELS], m) for m in machines)])
    columns = ["asked of the trees", ">aim", *(f">{m}" for m in machines)]
    return Table(name=AIMED, columns=columns, rows=rows)


def figure(aim: Aim, lines: Sequence[Judged], machine: str, model: str) -> str:
    """A dash where there is none, or one of too few trials."""
    some = [x for x in lines if (x.model, x.machine, x.by) == (model, machine, aim.by)]
    if not some or mean(x.trials for x in some) < aim.trials:
        return "-"
    ((_, cells),) = means(some)
    return dict(zip(MEANS[3:], cells, strict=True))[aim.column]


def behind(lines: Sequence[Judged], machine: str) -> str:
    trees, treegru = (figure(AIMS[0], lines, machine, m) for m in ("trees", "treegru"))
    return "-" if "-" in (trees, treegru) else f"{float(trees) - float(treegru):.3f}"

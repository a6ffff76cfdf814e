"""`tune model`: trains cost models on recorded trials, and says how good they are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import product, zip_longest
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from hlotune.cli.options import Json
from hlotune.cli.outputs import require_place, writing
from hlotune.cli.printing import counted, finite, print_json, print_table
from hlotune.cli.run import Model
from hlotune.schedules.atomic_files import whole
from hlotune.tuning_logs.default_path import cache_directory, database_path

if TYPE_CHECKING:
    from hlotune.costmodel.files import Header, Training
    from hlotune.costmodel.model import CostModel
    from hlotune.costmodel.ranking_quality import Quality
    from hlotune.costmodel.splits import Split
    from hlotune.search.learning.train_and_evaluate import HoldOut, Judged
    from hlotune.search.learning.training_rows import Examples

EXAMPLE = "Example: tune model train --database tuning.db -o mine.npz"

Databases = Annotated[
    list[Path] | None,
    typer.Option(
        "--database",
        "--db",
        metavar="FILE",
        help="Tuning database, or records that `tune db export` wrote; several count together.  "
        "[default: $HLOTUNE_DB, else a file in the user's cache]",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write.")]
Which = Annotated[Model, typer.Option(help="Which kind of model.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODEL",
        help="As for train; may be given several times.  [default: trees]",
        show_default=False,
    ),
]
TrainedFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Judge this trained model as it is, by kernels it has not seen, and train none.",
        show_default=False,
    ),
]
HeldOut = Annotated[
    Literal["kernels", "families"],
    typer.Option(help="Judge by unknown kernels of known families, or by unknown families."),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.svg",
        help="Draw best so far against trials, measured in the order of the predictions.",
        show_default=False,
    ),
]

FIGURES = {
    "pairs": "pairwise_accuracy",
    "fastest quarter": "fastest_quarter_accuracy",
    "Spearman": "spearman",
    "Kendall": "kendall",
    "recall@1": "recall_1",
    "@5": "recall_5",
    "@30": "recall_30",
    "regret": "top1_regret",
    "R2": "r2_log_time",
}
"""Column to field of `Quality`."""
TIMES = (">train, s", ">predict, s", ">rows/s")
"""Columns that depend on the hour and not on the model: the seconds to train on a split, the
seconds to predict a kernel's trials, and how many trials a second are predicted.
"""
MEANS = (
    "mean", "machine", "judged by", ">kernels", *(f">{name}" for name in FIGURES), ">worst pairs",
    *TIMES,
)  # fmt: skip
"""Columns of the table of means."""
ALONE = "it learned for a fixed number of steps: no other kernel could say when to stop"
Tell = Callable[[str], None]
UNTAUGHT = ("random", "roofline")
"""Models that learn nothing."""

app = typer.Typer(help="Trains cost models, and says how good they are.", no_args_is_help=True)


@app.command("train", epilog=EXAMPLE)
def train(out: Out, database: Databases = None, model: Which = "trees", json: Json = False) -> None:
    """Trains a model on all recorded trials; `tune run --model-file` starts from it."""
    from hlotune.cli.progress import telling
    from hlotune.costmodel import files
    from hlotune.search.learning.train_and_evaluate import trained, training_of

    if model in UNTAUGHT:
        raise typer.BadParameter(f"expected a model that learns, got {model}; train another")
    require_place(out, *_named(database))
    with telling() as tell:
        of = _examples(database, tell)
        seen = training_of(of)
        tell(f"teaching {model} by {_seen_text(seen)}")
        made = trained(model, of)
    if not made.knows:
        raise _nothing("trials of one kernel that differ in time", "none")
    with writing(out), whole(out) as part:
        made.save(part)
        files.annotate(part, seen)
    if json:
        return print_json({"file": str(out), "model": model, **asdict(seen)})
    alone = "" if len(seen.kernels) > 1 else f"\n{ALONE}"
    return print(f"{model}, trained on {_seen_text(seen)}, in {out}{alone}")


def _seen_text(seen: "Training") -> str:
    """`9 trials of 2 kernels of 1 family`."""
    return " of ".join(
        (
            counted(seen.trials, "trial"),
            counted(len(seen.kernels), "kernel"),
            counted(len(seen.families), "family", "families"),
        )
    )


@app.command("eval", epilog="Example: tune model eval --model trees --model treegru --db tuning.db")
def evaluate(
    database: Databases = None,
    model: Kinds = None,
    file: TrainedFile = None,
    hold_out: HeldOut = "kernels",
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Splits to train and judge by.")
    ] = 3,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Judges models by recorded trials of kernels that they have not seen.

    On each machine by all trials, by 300 of these where there are so many, and by those alone that
    were drawn at random: a sample of the space, where guided ones crowd among the fastest.
    """
    from hlotune.cli.progress import telling

    if unknown := set(model or ()) - set(get_args(Model)):
        raise typer.BadParameter(
            f"expected models among {', '.join(get_args(Model))}, got {', '.join(sorted(unknown))}"
        )
    if file and model:
        raise typer.BadParameter(
            f"expected models to train or a trained file, got both; leave out --model or {file}"
        )
    if plot is not None:
        require_place(plot, *_named(database), *filter(None, [file]))
        if plot.suffix.lower() != ".svg":
            raise typer.BadParameter(
                f"expected a file whose name ends in .svg, got {plot}; rename it"
            )
    loaded = _loaded(file) if file else None
    with telling() as tell:
        of = _examples(database, tell)
        if loaded:
            lines = _judged_file(loaded, of)
        else:
            lines = _judged(model or ["trees"], of, hold_out, seeds, tell)
    if plot is not None:
        with writing(plot), whole(plot) as part:
            part.write_text(_chart(lines), encoding="utf-8")
    if json:
        return print_json([as_json(line) for line in lines])
    return print_tables(lines)


Exported = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A trained model.  [default: the one that comes with hlotune]",
        show_default=False,
    ),
]
Kind = Annotated[
    Model | None,
    typer.Option(
        help="Which kind of model, where no file says it.  [default: trees]", show_default=False
    ),
]


@app.command("export", epilog="Example: tune model export -o trees.json")
def export(
    out: Out,
    file: Exported = None,
    model: Kind = None,
    json: Json = False,
) -> None:
    """Writes a trained model for other programs: trees as xgboost's JSON, others as arrays."""
    from hlotune.costmodel.export import write_foreign
    from hlotune.costmodel.files import header_of
    from hlotune.costmodel.pretrained import shipped
    from hlotune.schedules.errors import NoRecord

    path = file or shipped(model or "trees")
    if path is None:
        raise NoRecord(
            f"expected a trained {model} that comes with hlotune, got none; `tune model train "
            f"--model {model}` makes one for --file"
        )
    require_place(out, path)
    header = header_of(path)
    if model and model != header.model:
        raise typer.BadParameter(
            f"expected a file of the model {model}, got one of {header.model} in {path}; leave out "
            "--model"
        )
    with writing(out):
        write_foreign(path, out)
    about = {"file": str(out), "model": header.model, "features": header.features}
    return print_json(about) if json else print(f"{header.model} in {out}")


def _examples(databases: Sequence[Path] | None, tell: Tell) -> "list[Examples]":
    """Raises NoRecord where there is nothing to learn from."""
    from hlotune.search.learning.training_rows import examples
    from hlotune.tuning_logs.open_database import opened

    folder = _feature_cache()
    found: list[Examples] = []
    with ExitStack() as stack:
        for path in dict.fromkeys(map(Path.resolve, _named(databases))):
            if path.exists():  # else an error is all that is to be said
                tell(f"reading the trials of {path}")
            found += examples(stack.enter_context(opened(path)), folder)
    if not found:
        raise _nothing("recorded trials of kernels that have a space today", "none")
    return found


def _feature_cache() -> Path | None:
    """None for a user without a home folder."""
    from hlotune.schedules.errors import DatabaseError

    try:
        return cache_directory() / "hlotune" / "features"
    except DatabaseError:
        return None


def _named(databases: Sequence[Path] | None) -> Sequence[Path]:
    return databases or [database_path(None)]


def _nothing(expected: str, got: str) -> Exception:
    from hlotune.schedules.errors import NoRecord

    return NoRecord(f"expected {expected}, got {got}; `tune run` records trials to train on")


def _judged(
    models: Sequence[str], of: "list[Examples]", hold_out: "HoldOut", seeds: int, tell: Tell
) -> "list[Judged]":
    from hlotune.schedules.errors import NoRecord
    from hlotune.search.learning.train_and_evaluate import cross_judged

    lines: list[Judged] = []
    try:
        for name, seed in product(models, range(seeds)):
            about = f"{name}, split {seed + 1} of {seeds}"
            lines += cross_judged(name, of, hold_out, seed, partial(_begun, tell, about))
        return lines
    except ValueError as error:
        raise NoRecord(str(error)) from error


def _begun(tell: Tell, about: str, split: "Split") -> None:
    taught, judges = (counted(len(x), "kernel") for x in (split.train, split.held_out))
    tell(f"{about}: taught by {taught}, judged by {judges}")


def _loaded(file: Path) -> "tuple[Header, CostModel]":
    from hlotune.costmodel.files import header_of
    from hlotune.costmodel.pretrained import start

    header = header_of(file)
    return header, start(header.model, file).model


def _judged_file(loaded: "tuple[Header, CostModel]", of: "list[Examples]") -> "list[Judged]":
    from hlotune.search.learning.train_and_evaluate import judged

    header, model = loaded
    seen = header.training.kernels if header.training else ()
    unseen = [e for e in of if e.key not in seen]
    lines = [line for e in unseen for line in judged(header.model, model, e)]
    if not lines:
        raise _nothing("kernels that the model has not seen", f"{len(of)} that it was trained on")
    return lines


def print_tables(lines: "Sequence[Judged]") -> None:
    columns = [f">{name}" for name in FIGURES]
    for (model, machine, by), some in _sets(lines):
        rows = [
            [line.label or line.key[:8], line.family[:6], str(line.trials), *_cells(line.quality)]
            for line in some
        ]
        title = f"{model}, {by} on {machine}"
        print_table(["kernel", "family", ">trials", *columns], rows, title=title)
        print()
    print_table(MEANS, [[*names, *cells] for names, cells in means(lines)])


def means(lines: "Sequence[Judged]") -> "Iterator[tuple[tuple[str, str, str], list[str]]]":
    """The cells of what can be averaged: of one model, on one machine, by one kind of trials.

    Their columns are `MEANS`, of which names are the first three.
    """
    from hlotune.costmodel.ranking_quality import mean_quality

    for names, some in _sets(lines):
        yield (
            names,
            [
                str(len({x.key for x in some})),
                *_cells(mean_quality([x.quality for x in some])),
                f"{min(x.quality.pairwise_accuracy for x in some):.3f}",
                f"{sum(x.train_s for x in some) / len(some):.1f}",
                f"{sum(x.predict_s for x in some) / len(some):.3g}",
                f"{rows_per_s(some):,.0f}",
            ],
        )


def rows_per_s(lines: "Sequence[Judged]") -> float:
    """Rows a second of all kernels together: all rows over the time for all."""
    return sum(x.trials for x in lines) / sum(x.predict_s for x in lines)


def _cells(quality: "Quality") -> list[str]:
    values = [asdict(quality)[field] for field in FIGURES.values()]
    return ["-" if isnan(value) else f"{value:.3f}" for value in values]


def _sets(lines: "Sequence[Judged]") -> "list[tuple[tuple[str, str, str], list[Judged]]]":
    """By model, machine and kind of trials, in their order."""
    found: dict[tuple[str, str, str], list[Judged]] = {}
    for line in lines:
        found.setdefault((line.model, line.machine, line.by), []).append(line)
    return list(found.items())


def _chart(lines: "Sequence[Judged]") -> str:
    from hlotune.cli.charts import line_chart

    curves: dict[str, list[tuple[float, ...]]] = {}
    for line in lines:
        if line.by == "all trials":
            curves.setdefault(line.model, []).append(line.curve)
    mean_curves = {
        model: [sum(ys) / len(ys) for ys in zip_longest(*of_model, fillvalue=1.0)]
        for model, of_model in curves.items()
    }
    title = "Recorded trials in the order of the predictions, mean of kernels and machines"
    return line_chart(title, "trials", "best so far, of the best recorded", mean_curves)


def as_json(line: "Judged") -> dict[str, Any]:
    data = asdict(line) | asdict(line.quality) | {"predict_s": line.predict_s}
    del data["quality"]
    return dict(finite(data))

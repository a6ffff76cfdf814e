"""`tune model`: trains cost models on recorded trials, and says how good they are."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from hlotune.cli.options import Json
from hlotune.cli.printing import finite, print_json, print_table
from hlotune.cli.run import Model
from hlotune.schedules.files import whole
from hlotune.tuning_logs.location import cache_directory, database_path

if TYPE_CHECKING:
    from hlotune.costmodel.quality import Quality
    from hlotune.search.examples import Examples
    from hlotune.search.schooling import HoldOut, Judged

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
AtRandom = Annotated[
    bool,
    typer.Option(
        "--at-random",
        help="Judge by those trials alone that were drawn at random: a sample of the space, where "
        "guided ones crowd among the fastest.",
    ),
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

app = typer.Typer(help="Trains cost models, and says how good they are.", no_args_is_help=True)


@app.command("train", epilog=EXAMPLE)
def train(out: Out, database: Databases = None, model: Which = "trees", json: Json = False) -> None:
    """Trains a model on all recorded trials; `tune run --model-file` starts from it."""
    from hlotune.costmodel import files
    from hlotune.search.schooling import trained, training_of

    of = _examples(database)
    made = trained(model, of)
    if not made.knows:
        raise _nothing("trials of one kernel that differ in time", "none")
    seen = training_of(of)
    with _writing(out):
        made.save(out)
        files.annotate(out, seen)
    if json:
        return print_json({"file": str(out), "model": model, **asdict(seen)})
    what = f"{len(seen.kernels)} kernels of {len(seen.families)} families"
    return print(f"{model}, trained on {seen.trials} trials of {what}, in {out}")


@app.command("eval", epilog="Example: tune model eval --model trees --model treegru --db tuning.db")
def evaluate(
    database: Databases = None,
    model: Kinds = None,
    file: TrainedFile = None,
    hold_out: HeldOut = "kernels",
    at_random: AtRandom = False,
    seeds: Annotated[int, typer.Option(min=1, help="Splits to train and judge by.")] = 3,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Judges models by recorded trials of kernels that they have not seen."""
    if unknown := set(model or ()) - set(get_args(Model)):
        raise typer.BadParameter(
            f"expected models among {', '.join(get_args(Model))}, got {', '.join(sorted(unknown))}"
        )
    of = _examples(database)
    if file:
        lines = _judged_file(file, of, at_random)
    else:
        lines = _judged(model or ["trees"], of, hold_out, seeds, at_random)
    if plot is not None:
        with _writing(plot), whole(plot) as part:
            part.write_text(_chart(lines), encoding="utf-8")
    if json:
        return print_json([_as_json(line) for line in lines])
    return _print_tables(lines)


@app.command("export", epilog="Example: tune model export -o trees.json")
def export(
    out: Out,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A trained model.  [default: the one that comes with hlotune]",
            show_default=False,
        ),
    ] = None,
    model: Which = "trees",
    json: Json = False,
) -> None:
    """Writes a trained model for other programs: trees as xgboost's JSON, others as arrays."""
    from hlotune.costmodel.files import header_of
    from hlotune.costmodel.foreign import write_foreign
    from hlotune.costmodel.shipped import shipped

    path = file or shipped(model)
    if path is None:
        raise _nothing(f"a trained {model} that comes with hlotune", "none")
    header = header_of(path)
    with _writing(out):
        write_foreign(path, out)
    about = {"file": str(out), "model": header.model, "features": header.features}
    return print_json(about) if json else print(f"{header.model} in {out}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(
            f"expected to write to {path}, got {error.strerror or error}; name another path, or "
            "free some space"
        ) from error


def _examples(databases: Sequence[Path] | None) -> "list[Examples]":
    """Raises NoRecord where there is nothing to learn from."""
    from hlotune.search.examples import examples
    from hlotune.tuning_logs.opening import opened

    folder = cache_directory() / "hlotune" / "features"
    found: list[Examples] = []
    with ExitStack() as stack:
        for path in databases or [database_path(None)]:
            found += examples(stack.enter_context(opened(path)), folder)
    if not found:
        raise _nothing("recorded trials of kernels that have a space today", "none")
    return found


def _nothing(expected: str, got: str) -> Exception:
    from hlotune.schedules.errors import NoRecord

    return NoRecord(f"expected {expected}, got {got}; `tune run` records trials to train on")


def _none_at_random() -> Exception:
    from hlotune.schedules.errors import NoRecord
    from hlotune.search.examples import FEWEST

    return NoRecord(
        f"expected {FEWEST} trials drawn at random of a kernel that is held out, got none with so "
        "many; `tune run --searcher random` records some"
    )


def _judged(
    models: Sequence[str],
    of: "list[Examples]",
    hold_out: "HoldOut",
    seeds: int,
    at_random: bool,
) -> "list[Judged]":
    from hlotune.schedules.errors import NoRecord
    from hlotune.search.schooling import cross_judged

    try:
        lines = [
            line
            for name in models
            for seed in range(seeds)
            for line in cross_judged(name, of, hold_out, seed, at_random=at_random)
        ]
    except ValueError as error:
        raise NoRecord(str(error)) from error
    if not lines:
        raise _none_at_random()
    return lines


def _judged_file(file: Path, of: "list[Examples]", at_random: bool) -> "list[Judged]":
    from hlotune.costmodel.files import header_of
    from hlotune.costmodel.shipped import start
    from hlotune.search.examples import drawn_at_random
    from hlotune.search.schooling import judged

    header = header_of(file)
    seen = header.training.kernels if header.training else ()
    model = start(header.model, file).model
    unseen = [e for e in of if e.key not in seen]
    by = drawn_at_random(unseen) if at_random else unseen
    lines = [judged(header.model, model, e) for e in by]
    if unseen and not lines:
        raise _none_at_random()
    if not lines:
        raise _nothing("kernels that the model has not seen", f"{len(of)} that it was trained on")
    return lines


def _print_tables(lines: "Sequence[Judged]") -> None:
    from hlotune.costmodel.quality import mean_quality

    columns = [f">{name}" for name in FIGURES]
    for model, of_model in _by_model(lines):
        rows = [
            [line.label or line.key[:8], line.family[:6], str(line.trials), *_cells(line.quality)]
            for line in of_model
        ]
        print_table(["kernel", "family", ">trials", *columns], rows, title=model)
        print()
    means = [
        [
            model,
            *_cells(mean_quality([x.quality for x in of_model])),
            f"{sum(x.train_s for x in of_model) / len(of_model):.1f}",
            f"{rows_per_s(of_model):,.0f}",
        ]
        for model, of_model in _by_model(lines)
    ]
    print_table(["mean", *columns, ">train, s", ">rows/s"], means)


def rows_per_s(lines: "Sequence[Judged]") -> float:
    """Of all kernels together: all rows over the time for all."""
    return sum(x.trials for x in lines) / sum(x.trials / x.predict_rows_per_s for x in lines)


def _cells(quality: "Quality") -> list[str]:
    values = asdict(quality)
    return [f"{values[field]:.3f}" for field in FIGURES.values()]


def _by_model(lines: "Sequence[Judged]") -> "Iterator[tuple[str, list[Judged]]]":
    for model, of_model in groupby(lines, key=lambda line: line.model):
        yield model, list(of_model)


def _chart(lines: "Sequence[Judged]") -> str:
    from hlotune.cli.charts import line_chart

    means = {
        model: [
            sum(ys) / len(ys) for ys in zip_longest(*(x.curve for x in of_model), fillvalue=1.0)
        ]
        for model, of_model in _by_model(lines)
    }
    title = "Recorded trials in the order of the predictions, mean of the kernels"
    return line_chart(title, "trials", "best so far, of the best recorded", means)


def _as_json(line: "Judged") -> dict[str, Any]:
    data = asdict(line) | asdict(line.quality)
    del data["quality"]
    return dict(finite(data))

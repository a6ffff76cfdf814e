"""`tune bench`: the whole program, default against tuned."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hlotune.cli.devices import Device, asked_for
from hlotune.cli.each_variant import for_each
from hlotune.cli.loading import load_program, single_sizes
from hlotune.cli.options import (
    AnyJaxlib,
    ArgumentTypes,
    Database,
    Dimensions,
    Json,
    Numerics,
    OracleLimit,
    Program,
)
from hlotune.cli.printing import counted, finite, print_json, print_notes, print_table, say, size
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.deploy.accuracy import Accuracy
    from hlotune.deploy.apply import Explanation, TunedFunction
    from hlotune.deploy.bench_result import BenchResult
    from hlotune.deploy.rivals.contest import Standing
    from hlotune.hlo.frontends.program import Program as LoadedProgram
    from hlotune.measure.trial import Failure
    from hlotune.schedules.targets.target import Target
    from hlotune.tuning_logs.finals import Paired

CLOCKS = (
    "times of kernels are calls of each alone, its constants cold, so that a kernel of some "
    "microseconds gains less than inside a program; those of the program are calls as a user makes "
    "them"
)
APART = "intervals are of one process each, and the default's own time differs between processes"

SPARE = ("recorded", "kernel", "runs", "site", "of limit")
"""Columns of kernels that a narrow terminal goes without, the first of them first."""

EXAMPLE = "Example: tune bench examples/mlp.py:model --database tuning.db"


Pairs = Annotated[
    int, typer.Option(metavar="N", min=6, help="Pairs of samples, default and tuned.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of random inputs.")]
Rivals = Annotated[
    bool,
    typer.Option(
        "--rivals",
        help="Time ONNX Runtime and OpenVINO on the same program too, where installed.",
    ),
]


def bench(
    program: Program,
    database: Database = None,
    numerics: Numerics = "standard",
    target: Device = None,
    any_jaxlib: AnyJaxlib = False,
    pairs: Pairs = 30,
    seed: Seed = 0,
    oracle_limit: OracleLimit = None,
    rivals: Rivals = False,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Checks the tuned program, times it against the default, then each of its kernels."""
    from hlotune.cli.progress import telling
    from hlotune.deploy.apply import applied

    if len(variants := single_sizes(dim or ())) > 1:
        one = partial(
            bench, program, database, numerics, target, any_jaxlib, pairs, seed, oracle_limit,
            rivals, arg, json=json,
        )  # fmt: skip
        return for_each(variants, one)
    path, device = database_path(database), asked_for(target)
    loaded = load_program(program, arg, dim)
    with telling() as tell:
        tuned = applied(
            loaded, database=path, numerics=numerics, target=device, any_jaxlib=any_jaxlib,
            tell=tell,
        )  # fmt: skip
    require_records(loaded, tuned, path)
    timing = Timing(
        pairs=pairs, seed=seed, oracle_limit_s=oracle_limit, with_rivals=rivals, json=json
    )
    return timed(tuned, path, device, timing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a program is timed, and how that is shown."""

    pairs: int
    seed: int
    oracle_limit_s: float | None
    with_rivals: bool
    json: bool


def timed(tuned: "TunedFunction", path: Path, device: "Target | None", timing: Timing) -> None:
    """Checks and times the whole program, then its kernels; Ctrl-C shows what there is by then."""
    from hlotune.cli.progress import telling
    from hlotune.deploy.bench import compared, prepared
    from hlotune.deploy.input_sets import ORACLE_S
    from hlotune.deploy.kernel_times import timed_again
    from hlotune.deploy.rivals.contest import contested
    from hlotune.measure.machine.machine_lock import Turns

    turns = Turns()
    with blaming(tuned, path):
        with turns.alone():
            ready = prepared(
                tuned.program,
                oracle_limit_s=timing.oracle_limit_s or ORACLE_S,
                seed=timing.seed,
                target=tuned.target,
            )
        result = compared(ready, tuned, pairs=timing.pairs, turns=turns)
    standings = contested(ready, tuned, turns=turns) if timing.with_rivals else []
    again = dict[str, "Paired | Failure"]()
    try:
        with telling() as tell, blaming(tuned, path):
            again.update(timed_again(tuned, tell))
    except KeyboardInterrupt:
        show(replace(result, again=again), path, device, standings, json=timing.json)
        raise
    return show(replace(result, again=again), path, device, standings, json=timing.json)


def require_records(program: "LoadedProgram", tuned: "TunedFunction", path: Path) -> None:
    """Raises NoRecord where no kernel of a program has a record that holds here."""
    from hlotune.schedules.errors import NoRecord

    if tuned.is_unknown:
        what = tuned.outdated or "`tune run` makes them, `tune explain` says what is missing"
        raise NoRecord(
            f"program {program.name}: expected records of its kernels in {path}, found none that "
            f"hold here; {what}"
        )


def show(
    result: "BenchResult",
    path: Path,
    device: "Target | None",
    standings: "Sequence[Standing]" = (),
    *,
    json: bool,
) -> None:
    if json:
        rivals = {"rivals": rivals_json(standings)} if standings else {}
        return print_json({**result.to_json(), **rivals})
    print_result(result, limits_s(result, path, device))
    return print_standings(standings)


def rivals_json(standings: "Sequence[Standing]") -> list[dict[str, Any]]:
    """Speedups are over XLA, the first of them."""
    return [finite(s.to_json(standings[0].samples_s)) for s in standings]


def print_standings(standings: "Sequence[Standing]") -> None:
    """Who was timed in turns on the same arrays, and why others were not."""
    from statistics import median

    from hlotune.measure.timing.comparison import ratio
    from hlotune.tuning_logs.render import ratio_text, time_text

    if not standings:
        return
    timed = [s for s in standings if s.samples_s]
    rows = []
    for s in timed:
        found = ratio(timed[0].samples_s, s.samples_s)
        gain = "-" if s is timed[0] else ratio_text(found.median, found.low, found.high)
        error = max((a.tuned_error for a in s.accuracy), default=None)
        rows.append(
            (f"{s.name} {s.version}".strip(), time_text(median(s.samples_s)), gain,
             "-" if error is None else f"{error:.1e}")
        )  # fmt: skip
    print()
    print_table(["runtime", ">call", ">speed against XLA", ">relative error"], rows)
    for s in standings:
        if s.absent:
            say(f"{s.name}: {s.absent}")
    say("all in turns on the same arrays; other runtimes run the ONNX model of the program")


def limits_s(result: "BenchResult", path: Path, device: "Target | None") -> dict[str, float]:
    """The least time of a call by kernel, by the peaks that the database holds of the device."""
    from hlotune.cli.kernel_limits import limit_s
    from hlotune.measure.machine.targets import host_target
    from hlotune.tuning_logs.database import Database as TuningDatabase

    with TuningDatabase(path, read_only=True) as opened:
        peaks = opened.properties(device or host_target())
    if peaks is None:
        return {}
    kernels = {e.site.kernel.key: e.site.kernel for e in result.kernels if e.paired is not None}
    found = {key: limit_s(kernel, peaks, target=device) for key, kernel in kernels.items()}
    return {key: limit for key, limit in found.items() if limit}


@contextmanager
def blaming(tuned: "TunedFunction", path: Path) -> Iterator[None]:
    """Where a program proves wrong, the records to blame are marked: nothing applies them again."""
    from hlotune.measure.machine.targets import toolchain
    from hlotune.schedules.errors import WrongResult
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.database import conditions
    from hlotune.tuning_logs.revoke import take_back_wrong

    try:
        yield
    except WrongResult as error:
        under = conditions(tuned.target, toolchain())
        with TuningDatabase(path, create=False) as opened:
            keys = take_back_wrong(
                opened, error, program=tuned.program.key, numerics=tuned.numerics, **under
            )
        kept = f"; {', '.join(k[:8] for k in keys)} keep the default from now on" if keys else ""
        raise WrongResult(f"{error}{kept}", error.kernels, error.sites) from error


def print_result(result: "BenchResult", limits_s: Mapping[str, float] | None = None) -> None:
    from statistics import median

    from hlotune.measure.timing.modes import fast_time_s
    from hlotune.tuning_logs.render import modes_text, ratio_text, seldom_text, time_text

    default, tuned = time_text(fast_time_s(result.default_s)), time_text(median(result.tuned_s))
    ratio = result.speedup
    seldom = seldom_text(result.default_s, result.tuned_s)
    gain = ratio_text(ratio.median, ratio.low, ratio.high) + seldom
    replaced = [e.site.kernel.key for e in result.kernels if e.status == "tuned"]
    print_notes(result.notes)
    say(
        f"{result.program}: default {default}, tuned {tuned} a call, "
        f"{counted(len(replaced), 'site')} replaced by {counted(len(set(replaced)), 'kernel')}\n"
        f"speedup: {gain if replaced else 'none, the default runs on both sides'}, "
        f"{counted(len(result.default_s), 'pair')} of {counted(result.calls_per_sample, 'call')}"
    )
    if two := modes_text("the default program", result.default_s):
        say(two)
    if result.packed_bytes:
        packed = size(result.packed_bytes, "B", 1024)
        say(f"with {packed} of packed constants in memory, beside the program's own")
    print()
    print_kernels(result, limits_s or {})
    print_accuracy(result.accuracy)
    if result.shortfalls:
        print()
    for part in result.shortfalls:
        promised, gained = time_text(part.promised_s), f"{part.gained_s * 1e6:.1f} us"
        slower = ", and the program is proven faster without" if part.is_slower else ""
        names = ", ".join(part.sites)
        say(f"{names}: records promise {promised} less, measured {gained}{slower}")


def print_kernels(result: "BenchResult", limits_s: Mapping[str, float]) -> None:
    """Prints for each kernel what was measured now, and what the run said that decided."""
    from hlotune.measure.trial import Failure
    from hlotune.tuning_logs.render import BEYOND, modes_text

    columns = [
        "site", "kernel", "label", ">runs", ">default", ">tuned", ">speedup",
        ">of limit", ">recorded", "status",
    ]  # fmt: skip
    recorded = [e for e in result.kernels if e.paired is not None or e.status == "failed"]
    rows = [kernel_cells(e, result.measured(e), limits_s.get(e.site.kernel.key)) for e in recorded]
    print_table(columns, rows, spare=SPARE)
    if any(is_beyond(result.measured(e), limits_s.get(e.site.kernel.key)) for e in recorded):
        say(BEYOND)
    for key, found in result.again.items():
        if isinstance(found, Failure):
            why = " ".join(found.message.split())
            say(f"kernel {key[:8]} was not measured: {found.kind}, {why}")
        elif two := modes_text(f"the default of {key[:8]}", found.default_s):
            say(two)
    apart = {e.site.kernel.key for e in recorded if lie_apart(e.paired, result.measured(e))}
    if apart:
        say(
            f"of {counted(len(apart), 'kernel')} today's interval and the recorded one lie apart: "
            + APART
        )
    others = counted(len(result.kernels) - len(recorded), "more site")
    say(f"{others}: alternatives, or without a record")
    say(f"{CLOCKS}\n")


def lie_apart(recorded: "Paired | None", again: "Paired | Failure | None") -> bool:
    from hlotune.tuning_logs.finals import Paired

    if recorded is None or not isinstance(again, Paired):
        return False
    return again.high < recorded.low or recorded.high < again.low


def is_beyond(again: "Paired | Failure | None", limit_s: float | None) -> bool:
    """Whether a kernel takes less than the least time of the operations that it states."""
    from hlotune.measure.trial import Failure

    return isinstance(limit_s, float) and not (
        again is None or isinstance(again, Failure) or again.tuned_time_s >= limit_s
    )


def kernel_cells(
    e: "Explanation", again: "Paired | Failure | None", limit_s: float | None = None
) -> tuple[str, ...]:
    """Times of calls; none where the kernel was not measured again."""
    from hlotune.measure.trial import Failure
    from hlotune.tuning_logs.render import kernel_time_text

    name = (e.site.name, e.site.kernel.key[:8], e.site.label, f"{e.site.weight:g}")
    recorded = interval(e.paired) if e.paired else "-"
    if again is None or isinstance(again, Failure):
        return (*name, "-", "-", "not measured" if again else "-", "-", recorded, e.status)
    times = map(kernel_time_text, (again.default_time_s, again.tuned_time_s))
    share = f"{limit_s / again.tuned_time_s:.0%}" if limit_s else "-"
    return (*name, *times, interval(again), share, recorded, e.status)


def interval(paired: "Paired") -> str:
    """A speedup with its 95 % interval."""
    return f"{paired.speedup:.2f} [{paired.low:.2f}, {paired.high:.2f}]"


def print_accuracy(accuracy: "Sequence[Accuracy]") -> None:
    columns = ["inputs", ">result", ">error of tuned", ">of default", ">compared"]
    print_table(columns, map(accuracy_cells, accuracy))
    for reason in dict.fromkeys(a.unchecked for a in accuracy if a.unchecked):
        say(f"where the default's error is not known, results are held against it: {reason}")
    for a in accuracy:
        if a.default_wrong:
            say(
                f"XLA's own result {a.result} on {a.inputs} inputs does not agree with the "
                f"reference: {a.default_wrong}"
            )


def accuracy_cells(accuracy: "Accuracy") -> tuple[str, ...]:
    """Relative root mean square errors, and the share of the elements that they are of."""
    place = accuracy.inputs, str(accuracy.result)
    if not accuracy.is_checked:
        return *place, "not checked", "not checked", "0 %"
    default = accuracy.default_error
    of_default = "not known" if default is None else f"{default:.2g}"
    return *place, f"{accuracy.tuned_error:.2g}", of_default, f"{accuracy.compared:.4%}"

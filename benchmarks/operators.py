"""Single operators: XLA's own code against the tuned kernel.

    python -m benchmarks.operators --name mine --cases C6 gemm_1024 --trials 200

Each case is tuned as a program of its own, all on one database.  Its winner is then timed against
the default in turns, in both cache modes: `model`, as inside a network, and `warm`, the same
buffers again and again; the search optimises that of `--cache`.  The clock is `kernel`: the call
less an empty one; *alone* is the winner's time without the default's turns in between, which take
caches from it.  With `--numerics strict` Winograd's schedules are left out.  Shares are of the peak
of the operands' type.  Where the default was kept, the tuned time is the default's, the ratio 1.00.
*first* is the default's time over that of the first candidate, which a formula gives before any
search, without Winograd's.  The table is kept as `build/NAME.json`, with its options in a note.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.cases import CASES, FROZEN, PRODUCTS, RESNET, forms, selected, source
from benchmarks.command import RECORDED, command
from benchmarks.operations import PEAK_NAMES
from benchmarks.results import (
    Table,
    conditions,
    geometric_mean,
    milliseconds,
    proven,
    publish,
)
from hlotune.cli.progress import watching
from hlotune.codegen.built import Built
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.comparison import Comparison, Ratio, ratio
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Outcome
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.result import KernelResult, TuneResult
from hlotune.search.tune import tune
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.database import conditions as under_conditions
from hlotune.tuning_logs.decisions import Decision, decision

MODES: tuple[CacheMode, ...] = ("model", "warm")
PAIRS = 31
FIRST_PAIRS = 15


@dataclass(frozen=True, slots=True)
class Alone:
    """What is used, without the default's turns in between, which take caches from it."""

    time_s: float
    share: Ratio | None
    """The share of the multiply-add peak of the same milliseconds; None without such a peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Default and what is used in its place, in one cache mode; samples of both are paired."""

    cache: CacheMode
    default_s: float
    tuned_s: float
    speedup: float
    low: float
    high: float
    alone: Alone
    first: float
    """The default's time over the first candidate's, in turns of their own; 0 where that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    case: str
    kernel: str
    label: str
    flops: int
    """The operations, without padding."""
    won: bool
    trials: int
    known_trials: int
    failures: int
    tuning_s: float
    """The time of the whole run of the tuner, with its finals and the check of the program."""
    reason: str
    element: str
    """Type of the operands."""
    peak_flop_per_s: float
    """The peak for that type, as measured beside these timings: noise only makes it smaller, so the
    largest one counts.
    """
    timings: tuple[Timing, ...]


def main() -> None:
    options = parsed()
    target = host_target()
    with ProcessRunner(target) as runner:
        before = conditions(target, runner.properties())
    lines: list[Line] = []
    for name in options.cases:
        lines += measured(name, options, target)
        peaks = before["peak_flop_per_s"]
        for x in lines:
            peaks[x.element] = max(peaks.get(x.element, 0.0), x.peak_flop_per_s)
        found = table(lines, peaks, options.name, typed(options))
        publish(found, before, [asdict(line) for line in lines])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="operators", help="of the table")
    # fmt: off
    parser.add_argument(
        "--cases", nargs="+", metavar="CASE", default=[*RESNET, *PRODUCTS],
        help="names or patterns: C6, 'C*_nchw', '*'",
    )
    parser.add_argument("--families", nargs="+", default=(), help="of these cases, those alone")
    parser.add_argument(
        "--weights", choices=("arguments", "constants", "both"), default="both",
        help="where a case does not say it by its name",
    )
    # fmt: on
    parser.add_argument("--trials", type=int, default=200, help="for each kernel")
    parser.add_argument("--database", type=Path, default=Path("build/operators.db"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", choices=MODES, default="model", help="what the search optimises")
    parser.add_argument("--numerics", choices=NUMERICS, default="standard")
    options = parser.parse_args()
    try:
        names = selected(options.cases, options.families)
    except ValueError as error:
        parser.error(str(error))
    options.cases = [n for case in names for n in spelled(case, options.weights)]
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def typed(options: argparse.Namespace) -> str:
    """What decides the figures, cases aside, as it is typed."""
    names = ("weights", "numerics", "cache", "trials", "seed")
    return " ".join(f"--{name} {getattr(options, name)}" for name in names)


def spelled(case: str, weights: str) -> list[str]:
    """`C6` as `C6`, `C6_frozen`, or both; in one form alone where the case has no other."""
    if case.endswith(FROZEN):
        return [case]
    wanted = {"arguments": [case], "constants": [case + FROZEN]}.get(weights, forms(case))
    return [name for name in wanted if name in forms(case)]


def measured(name: str, options: argparse.Namespace, target: CpuTarget) -> list[Line]:
    """One line a kernel; most cases have one.  None where no kernel of the case has a space."""
    program = load(source(name))
    with watching() as progress:
        result = tune(
            program, trials=options.trials, database=options.database, seed=options.seed,
            cache=options.cache, numerics=options.numerics, progress=progress,
        )  # fmt: skip
    if result.interrupted:
        raise KeyboardInterrupt
    if result.wrong_anyway:
        print(f"{name}: {result.wrong_anyway}")
    for label, reason in result.skipped:
        print(f"{name}: {label} is left to XLA: {reason}")
    under = under_conditions(target, toolchain(), options.cache)
    with Database(options.database, create=False) as database:
        decided = {
            k.key: decision(database, k.key, numerics=options.numerics, **under)
            for k in result.kernels
        }
        return [
            line(name, k, result, database.kernel(k.key), decided[k.key], target, options.numerics)
            for k in result.kernels
        ]


def line(
    name: str, found: KernelResult, result: TuneResult, kernel: Kernel, decided: Decision,
    target: CpuTarget, numerics: Numerics,
) -> Line:  # fmt: skip
    element = PEAK_NAMES[CASES[name.removesuffix(FROZEN)].element]
    timed, peak = timings(kernel, decided.schedule, target, element, numerics)
    return Line(
        case=name,
        kernel=found.key,
        label=found.label,
        flops=flops_of(compute_of(graph_of(kernel))),
        won=decided.schedule != DEFAULT,
        trials=found.trials,
        known_trials=result.known_trials,
        failures=found.failures,
        tuning_s=result.wall_s,
        reason=decided.reason,
        element=element,
        peak_flop_per_s=peak,
        timings=timed,
    )


def timings(
    kernel: Kernel, schedule: Schedule, target: CpuTarget, element: str, numerics: Numerics
) -> tuple[tuple[Timing, ...], float]:
    """The default against the schedule in turns, in each cache mode; and the peak of this minute.

    All in fresh processes.
    """
    candidates = [Candidate(kernel, schedule), Candidate(kernel, first_schedule(kernel, target))]
    with ProcessBuilder(target) as builder, ProcessRunner(target, numerics) as runner:
        *objects, first = zip(candidates, builder.build(candidates), strict=True)
        found = []
        for cache in MODES:
            if schedule == DEFAULT:
                default = tuned = runner.default(kernel, cache=cache)
                alone = Alone(default.time_s, None)
            else:
                compared = runner.compare(kernel, objects, pairs=PAIRS, cache=cache, clock="kernel")
                default, tuned = compared.default, right(compared.candidates[0], kernel)
                alone = timed_alone(runner, kernel, objects[0], element, cache)
            begun = runner.compare(kernel, [first], pairs=FIRST_PAIRS, cache=cache, clock="kernel")
            found.append(timing(cache, default, tuned, alone, begun))
        return tuple(found), runner.properties().flops_per_s.get(element, 0.0)


def timed_alone(
    runner: ProcessRunner, kernel: Kernel, pair: tuple[Candidate, Built | Failure], element: str,
    cache: CacheMode,
) -> Alone:  # fmt: skip
    """The time of what is used, in turns with the peak of the operands' type if there is one."""
    _, built = pair
    if isinstance(built, Built) and element in runner.properties().flops_per_s:
        beside = runner.beside_peak(kernel, built, element, cache=cache)
        return Alone(beside.time_s, beside.share(flops_of(compute_of(graph_of(kernel)))))
    (trial,) = runner.measure(kernel, [pair], cache=cache)
    return Alone(right(trial.outcome, kernel).time_s, None)


def first_schedule(kernel: Kernel, target: CpuTarget) -> Schedule:
    space = space_of(compute_of(graph_of(kernel)), target, "strict")
    return space.schedule(space.heuristic())


def right(outcome: Outcome, kernel: Kernel) -> Measurement:
    if isinstance(outcome, Measurement):
        return outcome
    raise RuntimeError(f"the winner of {kernel.key[:8]} failed: {outcome.message}")


def timing(
    cache: CacheMode, default: Measurement, tuned: Measurement, alone: Alone,
    begun: Comparison,
) -> Timing:  # fmt: skip
    speedup = ratio(default.samples_s, tuned.samples_s)
    return Timing(
        cache=cache,
        default_s=median(default.samples_s),
        tuned_s=tuned.time_s,
        speedup=speedup.median,
        low=speedup.low,
        high=speedup.high,
        alone=alone,
        first=first_speedup(begun),
    )


def first_speedup(begun: Comparison) -> float:
    """The speedup of the one candidate over the default; 0 where it failed."""
    (first,) = begun.candidates
    if not isinstance(first, Measurement):
        return 0.0
    return ratio(begun.default.samples_s, first.samples_s).median


def percent(share: Ratio) -> str:
    """The share with its interval of 95 %."""
    return f"{share.median:.0%} ({share.low * 100:.0f} to {share.high * 100:.0f})"


def table(lines: Sequence[Line], peaks: Mapping[str, float], name: str, flags: str) -> Table:
    """`peaks`: operations a second by the type of the operands."""
    columns = [
        "case", "cache", ">XLA ms", ">tuned ms", ">ratio", ">95 %", "proven", ">GFLOP/s",
        ">of peak", ">alone ms", ">of peak alone", ">first", ">trials", ">tuner s", "decision",
    ]  # fmt: skip
    won = sum(x.won for x in lines)
    notes = [
        f"won {won} of {len(lines)} kernels; clock `kernel`; FLOPs without padding",
        "won: as the tuner decided; proven: what the interval of these timings says; with 1 inside "
        "it proves no difference",
    ]
    if lines:
        notes += [note for place in range(len(MODES)) for note in of_mode(lines, place)]
    return Table(
        name=name,
        columns=columns,
        rows=[cells(x, t, peaks.get(x.element)) for x in lines for t in x.timings],
        notes=[*notes, f"options: `{flags}`"],
    )


def of_mode(lines: Sequence[Line], place: int) -> Iterator[str]:
    """Notes of all kernels in one of `MODES`."""
    timings, cache = [x.timings[place] for x in lines], MODES[place]
    faster = sum(proof(x, t) == "faster" for x, t in zip(lines, timings, strict=True))
    yield f"proven faster, cache {cache}: {faster} of {len(lines)}"
    mean = geometric_mean([t.speedup for t in timings])
    yield f"geometric mean of the ratios, cache {cache}: {mean:.2f}"
    ahead = sum(t.first >= 1 for t in timings)
    yield (
        f"first candidate at least as fast as the default, cache {cache}: "
        f"{ahead} of {len(lines)} ({ahead / len(lines):.0%})"
    )


def proof(line: Line, t: Timing) -> str:
    """What one timing proves; a dash where the default was kept, which was timed once."""
    return proven(Ratio(t.speedup, t.low, t.high)) if line.won else "-"


def cells(line: Line, t: Timing, peak: float | None) -> list[str]:
    """`peak` is None where the type has none that was measured."""
    rate = line.flops / t.tuned_s
    known = f" + {line.known_trials} known" if line.known_trials else ""
    return [
        line.case,
        t.cache,
        milliseconds(t.default_s),
        milliseconds(t.tuned_s),
        f"{t.speedup:.2f}",
        f"{t.low:.2f} to {t.high:.2f}" if line.won else "-",
        proof(line, t),
        f"{rate / 1e9:.1f}",
        f"{rate / peak:.0%}" if peak else "-",
        milliseconds(t.alone.time_s),
        percent(t.alone.share) if t.alone.share else "-",
        f"{t.first:.2f}" if t.first else "failed",
        f"{line.trials}{known}",
        f"{line.tuning_s:.0f}",
        "tuned" if line.won else "kept xla, not won",
    ]


if __name__ == "__main__":
    command(main, RECORDED)

"""Tunes what the database has not of the cases, several kernels in one run of the tuner.

A run starts processes, measures peaks and learns from what is known, which costs several kernels
as much as one.  Cases with constant weights come after the same ones with weights as arguments, in
a run of their own, so that these lend them schedules.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from benchmarks.cases import FROZEN, factory, forms
from benchmarks.operations import Array
from benchmarks.peers.records import record
from hlotune.cli.progress import watching
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.trial import CacheMode
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.tune import tune

TOGETHER = 6


def tune_missing(
    cases: Sequence[str],
    trials: int,
    database: Path,
    target: CpuTarget,
    cache: CacheMode,
    end: float = float("inf"),
) -> None:
    """Until `end` of the monotonic clock no run begins.  Cases of a run that fails are tuned one by
    one; what fails alone is named and left out.

    Raises:
        KeyboardInterrupt: a run was interrupted; it goes on when it is asked for again.
    """
    waiting = list(groups(cases))
    while waiting:
        lacking = [n for n in waiting.pop(0) if not is_tuned(n, database, target, cache)]
        if not lacking:
            continue
        if time.monotonic() > end:
            print(f"not tuned, for the time is over: {', '.join(lacking)} and what follows")
            return
        if not tuned(lacking, trials, database, cache) and len(lacking) > 1:
            waiting = [[name] for name in lacking] + waiting


def tuned(names: Sequence[str], trials: int, database: Path, cache: CacheMode) -> bool:
    """Whether the run came to its end; else it says what stopped it."""
    try:
        tune_together(names, trials, database, cache)
    except HlotuneError as error:
        print(f"tuning {', '.join(names)} ended early: {error}", flush=True)
        return False
    return True


def groups(cases: Sequence[str], size: int = TOGETHER) -> Iterator[list[str]]:
    """Names of forms: some cases with weights as arguments, then the same with constants."""
    for start in range(0, len(cases), size):
        chosen = cases[start : start + size]
        yield list(chosen)
        yield [case + FROZEN for case in chosen if case + FROZEN in forms(case)]


def is_tuned(name: str, database: Path, target: CpuTarget, cache: CacheMode) -> bool:
    """Whether a run came to a decision about it."""
    case = name.removesuffix(FROZEN)
    weights = "arguments" if name == case else "constants"
    return record(case, weights, database, target, cache).status != "not tuned"  # type: ignore[arg-type]


def tune_together(names: Sequence[str], trials: int, database: Path, cache: CacheMode) -> None:
    with watching() as progress:
        result = tune(
            together(names), trials=trials, database=database, cache=cache, progress=progress
        )
    if result.interrupted:
        raise KeyboardInterrupt
    if result.wrong_anyway:
        print(f"{', '.join(names)}: {result.wrong_anyway}", flush=True)


def together(names: Sequence[str]) -> Program:
    """A program that is all of these cases; its kernels are theirs."""
    made = [factory(name)() for name in names]
    counts = [len(arguments) for _, arguments in made]

    def cases(*operands: Array) -> tuple[jax.Array, ...]:
        left = iter(operands)
        return tuple(
            function(*(next(left) for _ in range(n)))
            for (function, _), n in zip(made, counts, strict=True)
        )

    return load(cases, *(array for _, arguments in made for array in arguments))

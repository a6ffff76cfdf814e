"""Runs that were interrupted, as the database knows them: what is needed to go on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlotune.costmodel.pretrained import Start
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.devices import target_here
from hlotune.measure.machine.suspend_clock import Pulse, beating
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.schedules.errors import DatabaseError, NoRecord
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.target import Target
from hlotune.search.budget.limits import Limits
from hlotune.search.progress import Progress, silent
from hlotune.search.result import TuneResult
from hlotune.search.resume_queries import passed_s
from hlotune.search.tune import Choices, numbers_of, searched, started
from hlotune.tuning_logs.database import Conditions, Database, ProgramIdentity, conditions


@dataclass(frozen=True, slots=True)
class Interrupted:
    run: str
    source: str
    """The program's source, as `hlotune.load` takes it."""
    program: str
    """The program's key: it must not have changed."""
    seed: int
    numerics: Any
    under: Conditions
    """The conditions of its times, which must hold here and now."""
    searcher: str
    model: str
    model_digest: str | None
    trials: int | None
    budget_s: float | None
    passed_s: float
    """The seconds that the run took until its last batch was recorded."""


def resume(
    program: Program,
    run: str,
    *,
    database: str | Path,
    model_file: str | Path | None = None,
    progress: Progress | None = None,
    devices: int = 1,
    pulse: Pulse | None = None,
) -> TuneResult:
    """Goes on with an interrupted run of this program on this machine.

    It keeps its searcher, model, seed and numerics, and has what is left of its budget.  Given the
    same times it makes the choices of a run that never stopped, as long as no other run records in
    the database meanwhile.

    `run` is its id, or the beginning of it; `model_file` is the one that it began with, if any;
    `devices` and `pulse` are as in `tune`.

    Raises:
        NoRecord: there is no such run.
        DatabaseError: it has finished, or program, machine, versions or model are others by now.
        ModelError: the file holds no such model.
    """
    with beating(pulse) as pulse, Database(database, create=False) as records:
        before = interrupted(records, run)
        target = target_of_run(records, before)
        cache = before.under["cache"]
        require_same(program, before, conditions(target, toolchain(), cache))
        choices = Choices(
            numbers=numbers_of(target, devices),
            limits=Limits(seconds=before.budget_s, trials=before.trials),
            searcher=before.searcher,
            model=before.model,
            begun=same_model(before, Path(model_file) if model_file else None, target),
            seed=before.seed,
            numerics=before.numerics,
            cache=cache,
            target=target,
            progress=progress or silent,
        )
        return searched(program, records, choices, pulse, before.run, before.passed_s)


def require_same(program: ProgramIdentity, before: Interrupted, under: Conditions) -> None:
    """Raises DatabaseError where program or conditions are not those of the run: times under other
    conditions are no trials of it.
    """
    if program.key != before.program:
        raise DatabaseError(
            f"expected the program of run {before.run} ({before.source}, {before.program[:8]}), "
            f"got {program.name}, {program.key[:8]}: it is another one, or has changed; begin anew"
        )
    if under != before.under:
        raise DatabaseError(
            f"expected the conditions of run {before.run} ({in_words(before.under)}), got "
            f"{in_words(under)}: times are not compared between them; begin anew with `tune run`"
        )


def in_words(under: Conditions) -> str:
    return (
        f"target {under['fingerprint']} of {under['threads']} threads, toolchain "
        f"{under['toolchain_key']}, {under['cache']} caches"
    )


def target_of_run(database: Database, before: Interrupted) -> Target:
    """This machine's CPU; or the device of the run, where that is of another kind.

    Raises TargetError where such a device is not here.
    """
    found = database.query(
        "select identity from targets where fingerprint = :fingerprint",
        {"fingerprint": before.under["fingerprint"]},
    )
    try:
        target = target_of(json.loads(found[0]["identity"]))
    except (KeyError, TypeError, ValueError):
        return target_here()
    return target_here(None if isinstance(target, CpuTarget) else target)


def same_model(
    before: Interrupted, file: Path | None = None, target: Target | None = None
) -> Start:
    begun = started(before.model, file, target or host_target())
    if begun.digest != before.model_digest:
        raise DatabaseError(
            f"expected the trained model that run {before.run} began with, got "
            f"{begun.words}; give its file (--model-file), or begin anew with `tune run`"
        )
    return begun


def interrupted(database: Database, prefix: str) -> Interrupted:
    """The run whose id begins so.

    Raises NoRecord where there is none, or several; DatabaseError where it has finished, or where
    its options are not those of `tune run`.
    """
    found = database.query(
        """select runs.*, programs.source from runs join programs on programs.key = runs.program
        where substr(runs.id, 1, :length) = :prefix""",
        {"prefix": prefix, "length": len(prefix)},
    )
    if len(found) != 1 or not prefix:
        raise NoRecord(
            f"expected the beginning of one run's id, got {prefix!r}, with which {len(found)} "
            "begin; `tune db stats` lists them"
        )
    row = found[0]
    if row["finished"] is not None:
        raise DatabaseError(
            f"expected a run that was interrupted, got {row['id']}, which finished at "
            f"{row['finished']}; `tune run` begins another one with what it found"
        )
    options = json.loads(row["options"])
    try:
        return Interrupted(
            row["id"], row["source"], row["program"], row["seed"], row["numerics"],
            Conditions(
                fingerprint=row["target"], toolchain_key=row["toolchain"], cache=row["cache"],
                threads=row["threads"],
            ),
            options["searcher"], options["model"], options["model_digest"], options["trials"],
            options["budget_s"], passed_s(database, row["id"]),
        )  # fmt: skip
    except KeyError as error:
        raise DatabaseError(
            f"expected a run of `tune run`, got {row['id']} without the option {error}; begin anew"
        ) from error

"""Taking back a champion that was right and fast alone, and is not so in a program."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from hlotune.measure.trial import Candidate, Failure, Trial
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import TOGETHER, decision
from hlotune.tuning_logs.finals import SLOWER, WRONG, Final, Outcome

__all__ = ["SLOWER", "WRONG", "bar_wrong", "take_back", "take_back_wrong"]


def take_back(
    database: Database,
    kernel_key: str,
    reason: str,
    *,
    program: str | None = None,
    run: str | None = None,
    numerics: Numerics,
    **under: Unpack[Conditions],
) -> Final | None:
    """Records that a kernel goes back to its default.

    What was tuned together in a program goes back in that program, where alone it was used: what
    other programs use of the kernel stays, unless it is the same schedule and wrong.

    Args:
        program: the key of the program that finds so, as `decision` has it.
        run: which finds so; without one it stands in the run that had decided.

    Returns:
        What stood until then; None where it was the default anyway.
    """
    decided = decision(database, kernel_key, numerics=numerics, program=program, **under)
    found, where = decided.final, run or decided.run
    if found is None or where is None or decided.schedule == DEFAULT:
        return None
    outcome: Outcome = TOGETHER if found.outcome == TOGETHER else "kept default"
    kept = replace(found, outcome=outcome, withdrawn=reason)
    database.record_final(where, database.kernel(kernel_key), kept)
    return found


def take_back_wrong(
    database: Database,
    error: WrongResult,
    *,
    program: str | None = None,
    run: str | None = None,
    numerics: Numerics,
    **under: Unpack[Conditions],
) -> list[str]:
    """Takes back the champions to blame in a program, and bars them for good; returns their
    kernels' keys.
    """
    taken: list[str] = []
    for key in error.kernels:
        where = run or decision(database, key, numerics=numerics, program=program, **under).run
        found = take_back(
            database, key, WRONG, program=program, run=where, numerics=numerics, **under
        )
        if found is None or where is None:
            continue
        _bar(database, key, found, error, where)
        taken.append(key)
    return taken


def bar_wrong(
    database: Database, error: WrongResult, tried: Mapping[str, Final], *, run: str
) -> list[str]:
    """Bars those champions to blame that are not proven faster alone and were tried with others.

    Their finals are in `tried`, by the keys of their kernels.  Returns the keys of those that it
    bars.
    """
    barred = [key for key in error.kernels if key in tried]
    for key in barred:
        kept = replace(tried[key], outcome="kept default", withdrawn=WRONG)
        database.record_final(run, database.kernel(key), kept)
        _bar(database, key, tried[key], error, run)
    return barred


def _bar(database: Database, key: str, found: Final, error: WrongResult, run: str) -> None:
    """Records a champion as a failure, so that it is never champion again."""
    kernel = database.kernel(key)
    failure = Failure("wrong_result", f"right alone, {WRONG}: {error}")
    trial = Trial(Candidate(kernel, found.schedule), failure)
    database.add(run, kernel, [trial], batch=0)

"""What `apply` does with a kernel, and why: the schedule to use, or the reason for leaving it to
XLA.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from hlotune.measure.trial import (
    NUMERICS,
    Numerics,
)
from hlotune.schedules.schedule import DEFAULT, Schedule
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import UNDER, Conditions, Database
from hlotune.tuning_logs.finals import Final, Paired
from hlotune.tuning_logs.rows import Row

HURRIED = 0.5
"""A comparison with at most this share of the pairs of an earlier one was made in a hurry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    schedule: Schedule
    """DEFAULT wherever no schedule of ours was proved faster."""
    reason: str
    """One sentence for `tune explain`."""
    final: Final | None = None
    """The comparison that decided; None for a miss."""
    run: str | None = None
    """In which it was made."""


def decision(
    database: Database,
    kernel_key: str,
    *,
    numerics: Numerics = "standard",
    **under: Unpack[Conditions],
) -> Decision:
    """The newest comparison under these conditions decides, unless its winner is not allowed.

    One made in a hurry does not overrule a thorough one, unless its whole interval contradicts it;
    nor does one that proves nothing overrule one that proved a schedule of ours faster.
    Comparisons of runs under a laxer setting go first, as far as it is allowed: a later `strict`
    run that kept the default says nothing about what `standard` may use.
    """
    found = database.query(
        f"""select finals.*, runs.numerics as setting
        from finals join runs on runs.id = finals.run
        where kernel = :kernel and {UNDER}
        order by decided desc, finals.run""",
        {"kernel": kernel_key, **under},
    )
    rank = NUMERICS.index(numerics)
    usable = [row for row in found if row["decision"] != "tuned" or _rank(row["numerics"]) <= rank]
    usable.sort(key=lambda row: -min(_rank(row["setting"]), rank))
    if readable := _readable(database, usable):
        decides = standing([final for _, final in readable])
        run = next(run for run, final in readable if final is decides)
        return _decided(decides, run)
    reason = _why_not_usable(found, numerics) or _why_missing(database, kernel_key, under)
    return Decision(schedule=DEFAULT, reason=reason)


def _rank(numerics: Numerics) -> int:
    return NUMERICS.index(numerics)


def _readable(database: Database, found: Sequence[Row]) -> list[tuple[str, Final]]:
    """(run, final)"""
    finals: list[tuple[str, Final]] = []
    for row in found:
        try:
            finals.append((row["run"], rows.final_of(row)))
        except ValueError:
            database.unreadable += 1
    return finals


def standing(finals: Sequence[Final]) -> Final:
    """The final that decides, of one or more, the newest first."""
    decides = finals[0]
    for older in finals[1:]:
        if decides.withdrawn or older.withdrawn:
            break  # what was compared before that stands no more
        weaker = _hurried(decides, older) or (older.won and _proves_nothing(decides.paired))
        if weaker and not _contradicts(decides.paired, older.paired):
            decides = older
    return decides


def _hurried(newer: Final, older: Final) -> bool:
    return len(newer.paired.tuned_s) <= HURRIED * len(older.paired.tuned_s)


def _proves_nothing(paired: Paired) -> bool:
    return paired.low <= 1 <= paired.high


def _contradicts(newer: Paired, older: Paired) -> bool:
    return newer.high < older.low or newer.low > older.high


def _decided(final: Final, run: str) -> Decision:
    ratio = f"{final.paired.speedup:.2f}x ({final.paired.low:.2f} to {final.paired.high:.2f})"
    schedule = DEFAULT
    if final.withdrawn:
        reason = f"kept default: {final.withdrawn}"
    elif final.won:
        schedule, reason = final.schedule, f"tuned: {ratio}"
    else:
        reason = f"kept default: the best candidate reached {ratio}, margin {final.margin:+.3f}"
    return Decision(schedule=schedule, reason=reason, final=final, run=run)


def _why_not_usable(found: list[Row], numerics: Numerics) -> str | None:
    if not found:
        return None
    needed = min((row["numerics"] for row in found), key=_rank)
    if _rank(needed) <= _rank(numerics):
        return "its recorded schedule does not parse in this version of hlotune: tune it again"
    return f"its tuned schedule needs numerics {needed}, and {numerics} is allowed"


def _why_missing(database: Database, kernel_key: str, under: Conditions) -> str:
    values = {"kernel": kernel_key, "default": DEFAULT.to_json(), **under}
    here = database.query(
        f"""select count(*) as n from trials
        where kernel = :kernel and schedule <> :default and {UNDER}""",
        values,
    )[0]
    if here["n"]:
        return (
            f"{here['n']} trials, but none was compared with the default: "
            "`tune run` again starts from them"
        )
    elsewhere = database.query(
        """select count(*) as n,
            max(target = :fingerprint) as machine, max(toolchain = :toolchain_key) as toolchain,
            max(cache = :cache) as cache, max(threads = :threads) as threads
        from trials where kernel = :kernel and schedule <> :default""",
        values,
    )[0]
    if not elsewhere["n"]:
        return "never tuned"
    words = {
        "machine": "on this machine",
        "toolchain": "with this toolchain",
        "cache": f"in cache mode {under['cache']}",
        "threads": f"on {under['threads']} threads",
    }
    never = [text for column, text in words.items() if not elsewhere[column]]
    return (
        f"{elsewhere['n']} trials under other conditions, "
        f"none {', none '.join(never) or 'under all of these together'}"
    )

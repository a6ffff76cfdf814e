"""What `apply` does with a kernel, and why: the schedule to use, or the reason for leaving it to
XLA.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from hlotune.measure.machine.targets import toolchain, xla_flags
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import UNDER, Conditions, Database, at_least
from hlotune.tuning_logs.finals import WRONG, Final, Outcome, Paired
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.toolchains import with_other_flags, with_other_jaxlib

NEVER_TUNED = "never tuned"
"""The reason for leaving a kernel to XLA of which there is no record of any kind."""
TOGETHER: Outcome = "tuned together"
HURRIED = 0.5
"""A comparison with at most this share of the pairs of another was made in a hurry beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    schedule: Schedule
    """DEFAULT wherever no schedule of ours was proved faster."""
    reason: str
    """One sentence for `tune explain`."""
    final: Final | None = None
    """The comparison that decided; None for a miss."""
    run: str | None = None
    """The run in which it was made."""
    jaxlib: str | None = None
    """The version with which a schedule of ours was proved faster, where that is another version
    than this one and nothing was compared with this one.
    """


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A final as it is recorded."""

    final: Final
    run: str
    program: str | None
    """The key of the run's program."""
    rank: int
    """The rank of the numerics of its run: the higher, the laxer."""
    decided: str
    """When."""
    barred: bool
    """Whether it was tuned together with others, and a trial says that its schedule is wrong."""


def decision(
    database: Database,
    kernel_key: str,
    *,
    numerics: Numerics = "standard",
    program: str | None = None,
    **under: Unpack[Conditions],
) -> Decision:
    """The newest comparison under these conditions decides, unless its winner is not allowed.

    One made in a hurry does not overrule a thorough one, unless its whole interval contradicts it;
    nor does one that proves nothing overrule one that proved a schedule of ours faster, if that was
    not made in a hurry beside it.
    Comparisons of runs under a laxer setting go first, as far as it is allowed: a `strict` run that
    kept the default says nothing about what `standard` may use.  Where a laxer run's champion was
    taken back, what stricter runs found since then decides.

    `program` is the key of the program that the kernel is for: a schedule that was tuned together
    with others is for the program of its run alone, and stays there whatever runs of other programs
    find of the kernel alone, unless one finds that schedule wrong.
    """
    found = _finals(database, kernel_key, numerics, under)
    if decided := _compared(database, found, numerics, program):
        return decided
    if reason := _why_not_usable(found, numerics):
        return Decision(schedule=DEFAULT, reason=reason)
    other = elsewhere(database, kernel_key, numerics, under)
    if other is not None and other.jaxlib is not None:
        reason = tuned_with(other.jaxlib)
        return Decision(schedule=DEFAULT, reason=reason, jaxlib=other.jaxlib)
    return Decision(schedule=DEFAULT, reason=_why_missing(database, kernel_key, under))


def own_final(database: Database, run: str, kernel_key: str) -> Final | None:
    """What a run said of a kernel's champion; None where it said nothing, or took it back."""
    named = {"run": run, "kernel": kernel_key}
    found = database.query("select * from finals where run = :run and kernel = :kernel", named)
    final = rows.final_of(found[0]) if found else None
    ours = final is not None and final.schedule != DEFAULT and final.withdrawn is None
    return final if ours else None


def program_of(database: Database, run: str) -> str | None:
    """The key of the program that a run tunes; None where it tunes kernels alone."""
    found = database.query("select program from runs where id = :run", {"run": run})
    return found[0]["program"] if found else None


def tuned_together(
    database: Database, kernel_keys: Iterable[str], under: Conditions
) -> frozenset[str]:
    """Those of some kernels of which a schedule was tuned together with others of some program, be
    it taken back or not.
    """
    found = database.query(
        f"""select distinct kernel from finals join runs on runs.id = finals.run
        where kernel in (select value from json_each(:kernels))
        and decision = :together and {UNDER}""",
        {"kernels": rows.dumps(list(kernel_keys)), "together": TOGETHER, **under},
    )
    return frozenset(row["kernel"] for row in found)


def _finals(
    database: Database, kernel_key: str, numerics: Numerics, under: Conditions
) -> list[Row]:
    """All finals, the newest first.  What only a narrower setting than `numerics` found wrong is
    not barred.
    """
    return database.query(
        f"""select finals.*, runs.numerics as setting, runs.program as program,
        decision = :together and exists (
            select * from trials where trials.kernel = finals.kernel
            and trials.schedule = finals.schedule and failure_kind = 'wrong_result'
            and trials.numerics in ({at_least(numerics)}) and {UNDER}
        ) as barred
        from finals join runs on runs.id = finals.run
        where kernel = :kernel and {UNDER}
        order by decided desc, finals.run""",
        {"kernel": kernel_key, "together": TOGETHER, **under},
    )


def _compared(
    database: Database, found: Sequence[Row], numerics: Numerics, program: str | None = None
) -> Decision | None:
    """What finals under some conditions say; None where there are none that may be used."""
    rank = _rank(numerics)
    kept = "kept default"
    usable = [row for row in found if row["decision"] == kept or _rank(row["numerics"]) <= rank]
    readable = _without_wrong(_readable(database, usable), rank)
    own = [verdict for verdict in readable if program is not None and verdict.program == program]
    if own and (decides := _deciding(own, rank)).final.won and decides.final.outcome == TOGETHER:
        return _decided(decides, program)
    count = [v for v in readable if v.program == program or not _went_back_together(v.final)]
    return _decided(_deciding(count or readable, rank), program) if readable else None


def _without_wrong(found: Sequence[_Verdict], rank: int) -> list[_Verdict]:
    """Takes back every final whose schedule any final says is wrong, under a setting of this rank
    or a laxer one, and what was tuned together and is barred.
    """
    wrong = {v.final.schedule for v in found if v.final.is_wrong and v.rank >= rank}
    return [
        replace(v, final=replace(v.final, withdrawn=WRONG))
        if v.final.won and (v.barred or v.final.schedule in wrong)
        else v
        for v in found
    ]


def _went_back_together(final: Final) -> bool:
    """Whether it was taken back in the program in which it was tuned together with others, which
    says nothing of what other programs use."""
    return final.outcome == TOGETHER and final.withdrawn is not None


def tuned_with(jaxlib: str) -> str:
    """Why a schedule that was proved faster with another jaxlib is not used, and what to do."""
    return (
        f"tuned with jaxlib {jaxlib}, and this is {toolchain().jaxlib}: run `tune run` again, "
        "which starts from what is known, or use --any-jaxlib (any_jaxlib=True), which compares "
        "its kernels with the default of this jaxlib first"
    )


def _rank(numerics: Numerics) -> int:
    return NUMERICS.index(numerics)


def _readable(database: Database, found: Sequence[Row]) -> list[_Verdict]:
    verdicts: list[_Verdict] = []
    for row in found:
        try:
            final = rows.final_of(row)
        except ValueError:
            database.unreadable += 1
        else:
            rank = _rank(row["setting"])
            barred = bool(row["barred"])
            verdicts.append(
                _Verdict(final, row["run"], row["program"], rank, row["decided"], barred)
            )
    return verdicts


def _deciding(found: Sequence[_Verdict], rank: int) -> _Verdict:
    """The one that decides where settings up to a rank are allowed; the newest come first."""
    laxest = min(rank, max(v.rank for v in found))
    finals = [v.final for v in found if v.rank >= laxest]
    stands = standing(finals)
    decides = next(v for v in found if v.final is stands)
    since = [v for v in found if v.rank < laxest and v.decided > decides.decided]
    return _deciding(since, rank) if stands.withdrawn and since else decides


def standing(finals: Sequence[Final]) -> Final:
    """The final that decides, of one or more under one setting, the newest first."""
    decides = finals[0]
    for older in finals[1:]:
        if decides.withdrawn or older.withdrawn:
            break  # what was compared before that stands no more
        if _weaker(decides, older) and not _contradicts(decides.paired, older.paired):
            decides = older
    return decides


def _weaker(newer: Final, older: Final) -> bool:
    unproven = older.won and _proves_nothing(newer.paired)
    return _hurried(newer, beside=older) or (unproven and not _hurried(older, beside=newer))


def _hurried(final: Final, *, beside: Final) -> bool:
    return len(final.paired.tuned_s) <= HURRIED * len(beside.paired.tuned_s)


def _proves_nothing(paired: Paired) -> bool:
    return paired.low <= 1 <= paired.high


def _contradicts(newer: Paired, older: Paired) -> bool:
    return newer.high < older.low or newer.low > older.high


def _decided(verdict: _Verdict, program: str | None) -> Decision:
    final = verdict.final
    ratio = f"{final.paired.speedup:.2f}x ({final.paired.low:.2f} to {final.paired.high:.2f})"
    schedule = DEFAULT
    if final.withdrawn:
        reason = f"kept default: {final.withdrawn}"
    elif final.outcome == TOGETHER and verdict.program != program:
        reason = (
            f"kept default: tuned together with the other kernels of one program, alone {ratio}"
        )
    elif final.won:
        alone = " alone, and the program is faster with it" * (final.outcome != "tuned")
        schedule, reason = final.schedule, f"{final.outcome}: {ratio}{alone}"
    else:
        reason = f"kept default: the best candidate reached {ratio}, margin {final.margin:+.3f}"
    return Decision(schedule=schedule, reason=reason, final=final, run=verdict.run)


def _why_not_usable(found: list[Row], numerics: Numerics) -> str | None:
    if not found:
        return None
    needed = min((row["numerics"] for row in found), key=_rank)
    if _rank(needed) <= _rank(numerics):
        return "its recorded schedule does not parse in this version of hlotune: tune it again"
    return f"its tuned schedule needs numerics {needed}, and {numerics} is allowed"


def candidates_tried(database: Database, kernel_key: str, under: Conditions) -> int:
    """How many of ours, failures too, without the default."""
    found = database.query(
        f"""select count(*) as n from trials
        where kernel = :kernel and schedule <> :default and {UNDER}""",
        {"kernel": kernel_key, "default": DEFAULT.to_json(), **under},
    )
    return int(found[0]["n"])


def _why_missing(database: Database, kernel_key: str, under: Conditions) -> str:
    if here := candidates_tried(database, kernel_key, under):
        return (
            f"{here} trials, but none was compared with the default: "
            "`tune run` again starts from them"
        )
    if reason := _under_other_flags(database, kernel_key, under):
        return reason
    if reason := _with_other_jaxlib(database, kernel_key, under):
        return reason
    elsewhere = database.query(
        """select count(*) as n,
            max(target = :fingerprint) as machine, max(toolchain = :toolchain_key) as toolchain,
            max(cache = :cache) as cache, max(threads = :threads) as threads
        from trials where kernel = :kernel and schedule <> :default""",
        {"kernel": kernel_key, "default": DEFAULT.to_json(), **under},
    )[0]
    if not elsewhere["n"]:
        return NEVER_TUNED
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


def _under_other_flags(database: Database, kernel_key: str, under: Conditions) -> str | None:
    """The reason, where XLA_FLAGS alone keeps trials from counting under these conditions."""
    for other in with_other_flags(database, kernel_key, under):
        if other.trials:
            return (
                f"{other.trials} trials with XLA_FLAGS={other.toolchain.xla_flags!r}, none with "
                f"{xla_flags()!r} as here: all flags are part of the key; set the same ones, "
                "or tune it again"
            )
    return None


def _with_other_jaxlib(database: Database, kernel_key: str, under: Conditions) -> str | None:
    """The reason, where trials were made with another jaxlib alone and did not win there."""
    for other in with_other_jaxlib(database, kernel_key, under):
        if other.trials:
            return (
                f"{other.trials} trials with jaxlib {other.toolchain.jaxlib}, none with "
                f"{toolchain().jaxlib} as here: `tune run` again starts from them"
            )
    return None


def elsewhere(
    database: Database, kernel_key: str, numerics: Numerics, under: Conditions
) -> Decision | None:
    """What was decided with another jaxlib, where there is no comparison with this one.

    The newest jaxlib goes first with which a schedule of ours was faster.  The decision says with
    which it was made; its schedule is to be compared with the default of this jaxlib before it is
    used.
    """
    for other in with_other_jaxlib(database, kernel_key, under):
        there: Conditions = {**under, "toolchain_key": other.toolchain.key}
        found = _compared(database, _finals(database, kernel_key, numerics, there), numerics)
        if found is not None and found.final is not None and found.final.won:
            return replace(found, jaxlib=other.toolchain.jaxlib)
    return None

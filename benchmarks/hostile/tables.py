"""The tables of docs/reliability.md."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from benchmarks.hostile.files import OUTCOMES, FileReading, Reading, counted
from benchmarks.hostile.kills import Killing
from benchmarks.results import Table


def mutations(readings: Mapping[str, Sequence[Reading]], seed: int) -> Table:
    """Outcomes of mutations by format."""
    everything = [r for part in readings.values() for r in part]
    rows = [
        _outcomes(name, part) for name, part in [*readings.items(), ("all formats", everything)]
    ]
    return Table(
        name="hostile_mutations",
        columns=["format", ">mutations", *(f">{o}" for o in OUTCOMES)],
        rows=rows,
        notes=[f"seed {seed}", *(f"{r.outcome}: {r.words}" for r in everything if not r.is_sound)],
    )


def _outcomes(name: str, readings: Sequence[Reading]) -> list[str]:
    return [name, str(len(readings)), *map(str, counted(readings).values())]


def forged(readings: Sequence[FileReading]) -> Table:
    """What became of each forged file."""
    return Table(
        name="hostile_forged",
        columns=["format", "file", "outcome", ">seconds", ">memory of the process", "words"],
        rows=[
            [
                r.file,
                r.name,
                r.reading.outcome,
                f"{r.seconds:.1f}",
                f"{r.reading.peak_bytes / 1e6:.0f} MB",
                shortened(r.reading.words),
            ]
            for r in readings
        ],
        notes=["memory is the most that the reading process had, JAX included"],
    )


def shortened(words: str, most: int = 110) -> str:
    """On one line of a table in Markdown."""
    plain = " ".join(words.split()).replace("|", "\\|")
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


def kills(killings: Sequence[Killing]) -> Table:
    """Kills by victim, and the runs that were left to come to their end."""
    by_victim = groupby(sorted(killings, key=lambda k: k.victim), key=lambda k: k.victim)
    rows = [_kills(victim, list(found)) for victim, found in by_victim]
    killed = [k for k in killings if k.victim != "nobody"]
    return Table(
        name="hostile_kills",
        columns=["killed", ">times", ">with records", ">most records", ">lost", "problems"],
        rows=[*rows, _kills("all kills", killed)],
        notes=[
            "nobody: runs that went on to their end, after the kills of others",
            "with records: kills before which the database had trials, of the run or of earlier "
            "ones; lost: of these trials, those that were gone or changed afterwards",
        ],
    )


def _kills(victim: str, found: Sequence[Killing]) -> list[str]:
    return [
        victim,
        str(len(found)),
        str(sum(k.records > 0 for k in found)),
        str(max((k.records for k in found), default=0)),
        str(sum(k.lost for k in found)),
        "; ".join(dict.fromkeys(shortened(k.problem) for k in found if k.problem)) or "none",
    ]

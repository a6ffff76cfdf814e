"""The table of `docs/lab/peers.md` from the passes: one row a case and kind of weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any, Literal

from benchmarks.cases import CASES, SAME
from benchmarks.peers.contestants import BOTH, DEFAULT, OURS, REQUIRED, Contestant, Weights
from benchmarks.peers.passes import Pass
from benchmarks.peers.records import Status
from benchmarks.peers.roofs import FASTEST_READ, READ, Peaks
from benchmarks.peers.rounds import Turns
from benchmarks.results import Table, geometric_mean, milliseconds
from hlotune.measure.timing.comparison import Ratio, ratio
from hlotune.schedules.targets.cpu import CpuTarget

DECISIONS = {"tuned": "won", "kept xla": "kept xla, not won"}
READS = {
    READ: f"`{READ}`: of as many bytes, in turns with the kernel",
    FASTEST_READ: f"`{FASTEST_READ}`: of all passes, for none was timed beside that kernel",
}
"""What the share of a row is of, where reading limits it."""
LEVEL = 0.97
"""At least so many times as fast as the best peer counts as level with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    case: str
    weights: Weights
    family: str
    status: Status | Literal["failed"]
    """Failed: tuned, and not to be used now."""
    passes: int
    default_s: float
    ours_s: float
    """The default's where it was kept."""
    over_default: Ratio
    peer: str
    """The fastest one and its form; empty where none ran."""
    peer_s: float | None
    over_peer: Ratio | None
    share: float | None
    """The share of the roof below, by the clock `kernel`."""
    roof: str
    missing: tuple[str, ...]
    """The required peers that are missing."""
    refusals: Mapping[str, str]

    @property
    def won(self) -> bool:
        return self.status == "tuned"

    @property
    def place(self) -> str:
        """The case and its weights in words."""
        return f"{self.case} ({self.weights})"


def rows_of(
    passes: Sequence[Pass], contestants: Sequence[Contestant], target: CpuTarget, peaks: Peaks
) -> list[Row]:
    """The rows of one case; a row whose default was not timed is left out."""
    found = []
    for weights in BOTH if CASES[passes[0].case].has_weights else BOTH[:1]:
        times = times_of(passes, contestants, weights)
        if any(label.startswith(f"{DEFAULT} ") for label in times):
            found.append(row(passes, times, weights, target, peaks))
    return found


def all_rows(
    passes: Mapping[str, Sequence[Pass]], contestants: Sequence[Contestant], target: CpuTarget
) -> list[Row]:
    """The rows of several cases, with shares of the largest peaks of all."""
    peaks = Peaks.of(p.conditions for p in chain(*passes.values()))
    return [r for found in passes.values() for r in rows_of(found, contestants, target, peaks)]


def conditions_of(passes: Mapping[str, Sequence[Pass]]) -> dict[str, Any]:
    """The conditions of the first pass, with the largest peaks of all."""
    every = list(chain(*passes.values()))
    peaks = Peaks.of(p.conditions for p in every)
    return {**every[0].conditions, "peak_flop_per_s": dict(peaks.flop_per_s)}


def times_of(
    passes: Sequence[Pass], contestants: Sequence[Contestant], weights: Weights
) -> dict[str, tuple[float, ...]]:
    """Seconds of the forms that count for such a row, of all passes; those that had all turns.

    So value i of each is of the same round.
    """
    labels = [
        f"{c.name} {form}" for c in contestants for form, rows in c.forms.items() if weights in rows
    ]
    found = {}
    for label in labels:
        outcomes = [p.outcomes.get(label) for p in passes]
        if all(isinstance(o, Turns) for o in outcomes):
            found[label] = tuple(chain(*(o.call_s for o in outcomes if isinstance(o, Turns))))
    return found


def row(
    passes: Sequence[Pass],
    times: Mapping[str, tuple[float, ...]],
    weights: Weights,
    target: CpuTarget,
    peaks: Peaks,
) -> Row:
    case, last = passes[0].case, passes[-1]
    default = times[_fastest(times, DEFAULT)]
    is_tuned, label = last.status[weights] == "tuned", f"{OURS} {weights}"
    ours = times[label] if is_tuned and label in times else default
    peers = {k: v for k, v in times.items() if k.split()[0] not in (DEFAULT, OURS)}
    peer = _fastest(peers) if peers else ""
    own = [o for p in passes if (o := p.own[weights]) is not None]
    roof, share = peaks.share(case, target, own)
    return Row(
        case=case,
        weights=weights,
        family=CASES[case].family,
        status="failed" if is_tuned and label not in times else last.status[weights],
        passes=len(passes),
        default_s=median(default),
        ours_s=median(ours),
        over_default=ratio(default, ours),
        peer=peer,
        peer_s=median(peers[peer]) if peers else None,
        over_peer=ratio(peers[peer], ours) if peers else None,
        share=share,
        roof=roof,
        missing=tuple(n for n in REQUIRED if not any(k.split()[0] == n for k in peers)),
        refusals={k: f"{o.kind}: {o.message}" for k, o in last.outcomes.items()
                  if not isinstance(o, Turns)},
    )  # fmt: skip


def _fastest(times: Mapping[str, Sequence[float]], name: str = "") -> str:
    named = [label for label in times if label.split()[0] == name or not name]
    return min(named, key=lambda label: median(times[label]))


def table(
    rows: Sequence[Row],
    versions: Mapping[str, str],
    tuned_for: str = "model",
    told: Sequence[str] = (),
) -> Table:
    """`told`: what the records say beside."""
    columns = [
        "case", "weights", ">XLA ms", ">hlotune ms", ">over XLA", ">95 %", "best peer", ">its ms",
        ">over it", ">95 %", ">share", "of", ">passes", "decision",
    ]  # fmt: skip
    return Table(name="peers", columns=columns, rows=[cells(r) for r in rows],
                 notes=[*notes(rows), *told, f"hlotune was tuned for the cache mode `{tuned_for}`",
                        f"versions: {listed(versions)}"])  # fmt: skip


def cells(r: Row) -> list[str]:
    return [
        r.case,
        r.weights,
        milliseconds(r.default_s),
        milliseconds(r.ours_s),
        f"{r.over_default.median:.2f}",
        interval(r.over_default) if r.won else "-",
        r.peer or "-",
        milliseconds(r.peer_s),
        "-" if r.over_peer is None else f"{r.over_peer.median:.2f}",
        "-" if r.over_peer is None else interval(r.over_peer),
        "-" if r.share is None else f"{r.share:.0%}",
        r.roof,
        str(r.passes),
        DECISIONS.get(r.status, r.status),
    ]


def interval(found: Ratio) -> str:
    return f"{found.low:.2f} to {found.high:.2f}"


def notes(rows: Sequence[Row]) -> list[str]:
    """What the rows come to, and whether they may be shown at all."""
    said = [
        "clock `call`, all in turns, each library with as many threads; `share` by the clock "
        "`kernel`, warm; FLOPs without padding and inserted zeros",
        "XLA in its better form of the two; peers by the row's kind of weights",
    ]
    roofs = {r.roof for r in rows if r.share is not None}
    said += [meaning for roof, meaning in READS.items() if roof in roofs]
    if same := [f"{other} is {r.case}" for r in rows for other, n in SAME.items() if n == r.case]:
        said.append(f"by other names: {', '.join(dict.fromkeys(same))}")
    missing = [n for n in REQUIRED if all(n in r.missing for r in rows)]
    if missing:
        said.insert(0, f"INVALID: without {', '.join(missing)} this compares with too little")
    partly = {n: [r.place for r in rows if n in r.missing] for n in REQUIRED if n not in missing}
    said += [f"without {name}: {', '.join(places)}" for name, places in partly.items() if places]
    if untuned := sum(r.status == "not tuned" for r in rows):
        said.append(f"not tuned, and in no figure below: {untuned} rows")
    return [*said, *means(rows), *against_peers(rows)]


def means(rows: Sequence[Row]) -> Iterable[str]:
    """Geometric means over the default by family and kind of weights, f32 alone."""
    for weights in BOTH:
        chosen = [r for r in rows if r.weights == weights and counts(r)]
        parts = []
        for family in dict.fromkeys(r.family for r in chosen):
            alike = [r for r in chosen if r.family == family]
            mean = geometric_mean([r.over_default.median for r in alike])
            won = sum(r.won for r in alike)
            parts.append(f"{family} {mean:.2f} ({won} of {len(alike)} won)")
        if parts:
            yield f"over XLA, geometric means of f32, weights as {weights}: {', '.join(parts)}"


def counts(r: Row) -> bool:
    """Whether it goes into the summaries: f32, and the tuner had its chance."""
    return CASES[r.case].element == "f32" and r.status != "not tuned"


def against_peers(rows: Sequence[Row]) -> list[str]:
    compared = [r for r in rows if r.over_peer and counts(r)]
    if not compared:
        return []
    level = [r for r in compared if r.over_peer and r.over_peer.median >= LEVEL and r.won]
    others = [r.over_peer.median for r in compared if r.over_peer and r.family != "gemm"]
    said = [f"ahead of the best peer, or within 3 %: {len(level)} of {len(compared)} f32 rows"]
    if others:
        mean = geometric_mean(others)
        said.append(f"over the best peer, geometric mean of f32 but plain products: {mean:.2f}")
    behind = [r.place for r in compared if r not in level]
    return said + ([f"behind the best peer: {', '.join(behind)}"] if behind else [])


def listed(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())

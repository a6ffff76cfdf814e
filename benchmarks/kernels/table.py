"""The table of all cases that were measured, and how many of them are ahead."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks import tracked
from benchmarks.kernels import kept
from benchmarks.kernels.cases import CASES
from benchmarks.kernels.kept import FIRST, Line
from benchmarks.results import Table, geometric_mean

NAME = "kernels"
NEAR = 1.03
"""A time within it of another is level with it."""
LEAST_SHARE, LEAST_SHARES = 0.8, {"L3": 0.6}
"""The share of the plain bandwidth that a case should reach, and other shares of some levels."""
Verdict = Literal["ahead", "level", "behind", "no peer", "left to XLA", "kept XLA", "failed"]
PEERS = {
    "pytorch eager": "PyTorch", "pytorch compiled": "PyTorch compiled",
    "onnxruntime model": "ONNX Runtime", "openvino model": "OpenVINO",
}  # fmt: skip
_COLUMNS = [
    "case", ">XLA us", ">peer us", "best peer", ">first us", ">ours us", ">XLA / ours",
    ">peer / ours", ">limit us", ">of limit", "level",
    ">of a plain call", ">of a plain loop", "verdict",
]  # fmt: skip


def verdict(line: Line) -> Verdict:
    """How ours stands to the best peer; what has no kernel of ours has won nothing."""
    if line.ours_s is None:
        return "failed"
    if line.left_to_xla:
        return "kept XLA" if line.tuning.kernels else "left to XLA"
    if line.best_peer is None:
        return "no peer"
    ratio = line.best_peer[1] / line.ours_s
    if ratio > NEAR:
        return "ahead"
    return "level" if ratio >= 1 / NEAR else "behind"


def first_ratio(line: Line) -> float | None:
    """XLA's time over that of the first candidates; None where one has none."""
    return _over(line.xla_s, line.times_s.get(FIRST))


def measured(folder: Path) -> Iterator[tuple[Table, Mapping[str, Any], list[Line]]]:
    """The table of each kind of core that has results there, with its conditions and lines."""
    for core, path in tracked.cores(NAME, folder):
        if lines := kept.lines(path, CASES):
            yield table(lines, core), tracked.spanning([x.conditions for x in lines]), lines


def table(lines: Sequence[Line], core: str) -> Table:
    return Table(
        name=f"{NAME}_{core}",
        columns=_COLUMNS,
        rows=[cells(x) for x in lines],
        notes=notes(lines),
    )


def cells(line: Line) -> tuple[str, ...]:
    ours, xla, (who, peer_s) = line.ours_s, line.xla_s, line.best_peer or ("", None)
    limit, said = line.limit_s, str(verdict(line))
    if line.goal_s is not None:
        said += f", goal {line.goal_s * 1e6:g}"
    return (
        line.case, _us(xla), _us(peer_s), PEERS.get(who, who) or "-", _us(line.times_s.get(FIRST)),
        _us(ours), _ratio(_over(xla, ours)), _ratio(_over(peer_s, ours)), _us(limit),
        _percent(limit / ours if limit and ours else None),
        line.tuning.level or "-", _percent(line.share_of_bandwidth),
        _percent(line.share_of_direct_loop), said,
    )  # fmt: skip


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.4g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def notes(lines: Sequence[Line]) -> list[str]:
    said = [verdict(x) for x in lines]
    firsts = [r for r in map(first_ratio, lines) if r]
    xla = [r for x in lines if (r := _over(x.xla_s, x.ours_s))]
    peer = [r for x in lines if x.best_peer and (r := _over(x.best_peer[1], x.ours_s))]
    found = [
        "blocking calls of one jitted function, medians of turns of all in one run; `first` is "
        "what `tune run --first` takes, without a search",
        f"{len(lines)} cases: " + ", ".join(f"{said.count(v)} {v}" for v in dict.fromkeys(said)),
        "what is left to XLA counts with XLA's time, and is never ahead",
    ]
    if xla and peer:
        found.append(
            f"geometric means: {geometric_mean(xla):.2f} times XLA's speed, "
            f"{geometric_mean(peer):.2f} times the best peer's"
        )
    against = sum(x.best_peer is not None for x in lines)
    met = sum(v in ("ahead", "level") for v in said)
    found.append(f"ahead of the best peer or within 3 %: {met} of {against} that have a peer")
    if firsts:
        good = sum(r >= 1 / NEAR for r in firsts)
        found.append(
            f"first candidates at least as fast as XLA, or within 3 %: {good} of {len(firsts)}; "
            f"geometric mean {geometric_mean(firsts):.2f} times"
        )
    return found + _bandwidth_notes(lines)


def _bandwidth_notes(lines: Sequence[Line]) -> list[str]:
    """How many cases reach their share of the bandwidth; nothing where none was held against it."""
    called = _held((x.tuning.level, x.share_of_bandwidth) for x in lines)
    direct = _held((x.tuning.level, x.share_of_direct_loop) for x in lines)
    if not (called or direct):
        return []
    aim = f"{LEAST_SHARE:.0%}, {LEAST_SHARES['L3']:.0%} where the level is L3"
    return [
        "of a plain call: bytes a second, as a share of a plain read or copy of as many bytes in "
        "turns with it, a custom call of a jitted function as ours are, where bytes take at least "
        "three times as long as operations at peak; - elsewhere, and where none was timed",
        "of a plain loop: the same beside a loop that is called without XLA, on memory prepared "
        "beforehand: what XLA's call costs counts against ours alone",
        f"at least {aim}, of a plain call: {_reached(called)}; of a plain loop: {_reached(direct)}",
    ]


def _held(shares: Iterable[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Those of cases that were held against a loop, with their level."""
    return [(level, share) for level, share in shares if share is not None]


def _reached(shares: Sequence[tuple[str, float]]) -> str:
    reached = sum(share >= LEAST_SHARES.get(level, LEAST_SHARE) for level, share in shares)
    return f"{reached} of {len(shares)}"


def reasons(lines: Sequence[Line]) -> list[str]:
    """Why cases are left to XLA or failed, and which library refused which case."""
    found = []
    for x in lines:
        if x.tuning.failure:
            found.append(f"{x.case}: tuning failed: {x.tuning.failure}")
        if x.left_to_xla:
            found.append(f"{x.case}: {x.left_to_xla}")
            found += [f"{x.case}: {reason}" for reason in x.tuning.skipped]
        found += [
            f"{x.case}: {label}: {why}" for label, why in x.refused.items()
            if not why.startswith("unsupported")
        ]  # fmt: skip
    return found

"""The table of a machine's results: each case's best times, and what they are of the rivals'."""

import fnmatch
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.device.cases import RIVALS, from_json
from benchmarks.device.records import Row

GROUPS = {
    "all": "*",
    "without attention": "[!a]*",
    "products": "gemm_*",
    "rows": "[sl]*",
    "convolutions": "conv_*",
    "windows of 3x3": "*_3x3_*",
    "windows of 1x1": "*_1x1_*",
}
"""Cases over which means are taken, by patterns of their names."""


def table(rows: Sequence[Row]) -> str:
    """Markdown: microseconds in rounds, the ratio to XLA's default, rates of the best."""
    timed = [r for r in rows if r["what"] == "rounds"]
    cases = list(dict.fromkeys(r["case"] for r in timed))
    head = ["case", "hlotune", *RIVALS, "over xla", "TFLOP/s", "TB/s", "schedule"]
    lines = [head, ["---"] * len(head), *(_line(c, timed) for c in cases)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    ratios = _ratios("xla_default", "*", timed)
    if not ratios:
        return text
    mean = f"Geometric mean over XLA's default: {_mean(ratios):.3f}, of {len(ratios)} cases."
    return f"{text}\n\n{means(rows)}\n\n{mean}"


def means(rows: Sequence[Row]) -> str:
    """Markdown: over each rival the geometric mean of each group, of how many, and those behind."""
    timed = [r for r in rows if r["what"] == "rounds"]
    lines = [["over", *GROUPS], ["---"] * (1 + len(GROUPS))]
    for how in RIVALS:
        lines.append([how, *(_cell(_ratios(how, part, timed)) for part in GROUPS.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{_mean(ratios):.3f} of {len(ratios)}, {sum(r < 1 for r in ratios)} behind"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))


def best(case: str, how: str, rows: Sequence[Row]) -> Row | None:
    """The fastest of the last rounds of a case."""
    found = [r for r in rows if r["case"] == case and r["how"] == how]
    return min(found, key=lambda r: float(r["seconds"]), default=None)


def lead(case: str, rows: Sequence[Row]) -> float:
    """The fastest rival's time over ours, by rounds; 0 where either is missing."""
    timed = [r for r in rows if r["what"] == "rounds"]
    ours = best(case, "hlotune", timed)
    rivals = [r["seconds"] for how in RIVALS if (r := best(case, how, timed)) is not None]
    return 0.0 if ours is None or not rivals else float(min(rivals) / ours["seconds"])


def _ratios(how: str, pattern: str, rows: Sequence[Row]) -> list[float]:
    """The ratio of each case whose name matches, where both were measured."""
    names = dict.fromkeys(r["case"] for r in rows if fnmatch.fnmatch(r["case"], pattern))
    return [r for r in (_ratio(name, rows, how) for name in names) if r is not None]


def _ratio(case: str, rows: Sequence[Row], how: str = "xla_default") -> float | None:
    """A rival's time over ours."""
    ours, rival = best(case, "hlotune", rows), best(case, how, rows)
    return None if ours is None or rival is None else float(rival["seconds"] / ours["seconds"])


def _line(case: str, rows: Sequence[Row]) -> list[str]:
    ours, ratio = best(case, "hlotune", rows), _ratio(case, rows)
    times = [_microseconds(best(case, how, rows)) for how in ("hlotune", *RIVALS)]
    if ours is None:
        return [case, *times, "", "", "", ""]
    kernel = from_json(ours["kernel"])
    rate, traffic = kernel.flops / ours["seconds"] / 1e12, kernel.bytes / ours["seconds"] / 1e12
    over = "" if ratio is None else f"{ratio:.2f}"
    return [case, *times, over, f"{rate:.0f}", f"{traffic:.2f}", _schedule(ours)]


def _microseconds(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['seconds'] * 1e6:.1f}"


def _schedule(row: Row) -> str:
    return f"{row['sketch']} " + " ".join(f"{n}={v}" for n, v in row["knobs"].items())

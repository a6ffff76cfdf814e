"""Which bound holds a kernel, and by how much: the times that single parts of a machine need."""

from collections.abc import Mapping
from dataclasses import dataclass

from hlotune.schedules.targets.limit import Limit

PARTS = {
    "cost_loads": "loads into registers, two a cycle",
    "cost_l1": "L1: lines that enter it from L2",
    "cost_l2": "L2: lines that enter it from L3",
    "cost_l3": "L3: lines that enter it from memory",
    "cost_packing": "packing: copies of operands into panels",
    "cost_waking": "calls: starting threads and tasks",
}
"""Column of the features to what it says of a kernel."""
NEAR = 0.8
"""A part that needs this share of the measured time holds the kernel."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    time_s: float
    share: float
    """The share of the measured time."""
    is_estimate: bool
    """By rates of no processor in particular; else by measured peaks."""


def parts(
    limit: Limit | None, features: Mapping[str, float], flops_per_s: float | None, used_s: float
) -> tuple[Part, ...]:
    """What each part of the machine needs alone, the longest first.

    Args:
        features: of the nest, in logarithms as cost models have them; may be empty.
        flops_per_s: the measured peak of the kernel's type; without it no estimate has seconds.
        used_s: the measured time.
    """
    found = list[Part]()
    if limit:
        found.append(_part("compute: all arithmetic at the peak", limit.compute_s, used_s, False))
    if limit and limit.memory_s:
        name = "memory: each argument and result moved once"
        found.append(_part(name, limit.memory_s, used_s, False))
    if flops_per_s and "flops" in features:
        peak_s = 2.0 ** features["flops"] / flops_per_s
        found += [
            _part(words, 2.0 ** features[name] * peak_s, used_s, True)
            for name, words in PARTS.items()
            if features[name] > -15.5
        ]
    return tuple(sorted(found, key=lambda part: -part.time_s))


def _part(name: str, time_s: float, used_s: float, is_estimate: bool) -> Part:
    return Part(name, time_s, time_s / used_s, is_estimate)


def verdict(found: tuple[Part, ...]) -> str:
    """One sentence: what holds the kernel, and how much of its time that explains."""
    if not found:
        return "No bound is known: neither its arithmetic nor a peak of its type is recorded."
    first = found[0]
    name = first.name.partition(":")[0].partition(" ")[0]
    how = f"which needs {first.share:.0%} of the measured time by itself"
    if first.share > 1:
        return (
            f"The {'estimate' if first.is_estimate else 'bound'} of {name} lies above the measured "
            f"time ({first.share:.0%} of it): the algorithm saves arithmetic, or the "
            f"{'rate is too careful' if first.is_estimate else 'peak was measured too low'}."
        )
    if first.share >= NEAR:
        return f"It is held by {name}, {how}."
    return (
        f"No single part explains its time; the longest is {name}, {how}. What is left is waiting: "
        "parts that do not overlap, latency, or the cost of a call."
    )

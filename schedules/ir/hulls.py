"""Which part of its axes a stage computes inside a loop: the hull of what is read of it there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlotune.schedules.errors import require
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Affine, Terms


@dataclass(frozen=True, slots=True)
class Interval:
    """`size` positions of an axis from `low` on, which is affine in positions around it."""

    low: Affine
    size: int


def hull(producer: Stage, consumer: Stage, inside: Mapping[str, int]) -> dict[str, int]:
    """Size along each parallel axis of `producer` that one load of `consumer` covers.

    `inside` is what the consumer walks of its own axes meanwhile.  Several loads may differ in the
    constants of their index maps, as `ComputeAt` requires.  A lookup may find any place.
    """
    sizes = {a.name: 1 for a in producer.parallel}
    inside = {**inside, **{x.name: x.most + 1 for x in consumer.lookups}}
    found = [consumer.maps[t] for t in producer.stored if t in consumer.maps]
    for d, axis in enumerate(producer.stored_axes or ()):
        if axis is None or not found:
            continue
        terms = {t for maps in found for t in maps[d].terms}
        reach = max(sum(abs(c) * (inside[a] - 1) for a, c in t) for t in terms)
        starts = max(maps[d].most for maps in found) - min(maps[d].least for maps in found)
        sizes[axis] = 1 + reach + starts
    return sizes


def read_by(
    producer: Stage, consumer: Stage, walked: Mapping[str, Interval]
) -> dict[str, Interval]:
    """The same with where it begins, along each axis that `producer` stores along.

    `walked` is the consumer's own part of its axes.
    """
    sizes = hull(producer, consumer, {axis: part.size for axis, part in walked.items()})
    looked_up = {x.name: Interval(Affine(), x.most + 1) for x in consumer.lookups}
    walked = {**walked, **looked_up}
    found = [consumer.maps[t] for t in producer.stored if t in consumer.maps]
    parts = dict[str, Interval]()
    for d, axis in enumerate(producer.stored_axes or ()):
        if axis is not None and found:
            least = min(maps[d].least for maps in found)
            lows = [_low(t, walked) + least for maps in found for t in maps[d].terms]
            alike = [Interval(low, sizes[axis]) for low in lows]
            parts[axis] = _joined(producer.name, axis, alike)
    return parts


def _low(terms: Terms, walked: Mapping[str, Interval]) -> Affine:
    """The least value of a sum over what is walked."""
    low = Affine.weighted((walked[a].low, c) for a, c in terms)
    return low + sum(c * (walked[a].size - 1) for a, c in terms if c < 0)


def joined(name: str, parts: Sequence[Mapping[str, Interval]]) -> dict[str, Interval]:
    """What several readers read of a stage together, axis by axis.

    Raises ScheduleError where it depends on positions how far these lie apart.
    """
    return {axis: _joined(name, axis, [part[axis] for part in parts]) for axis in parts[0]}


def _joined(name: str, axis: str, parts: Sequence[Interval]) -> Interval:
    together = len({part.low.terms for part in parts}) == 1
    lows = " and ".join(dict.fromkeys(str(part.low) for part in parts))
    require(together, "compute_at", (
        f"{name} is read along {axis} from {lows} on, which move apart: compute it further outside"
    ))  # fmt: skip
    low = min((part.low for part in parts), key=lambda e: e.constant)
    ends = (part.low.constant + part.size for part in parts)
    return Interval(low, max(ends) - low.constant)

"""Runs over kernels of which some win alone and others only together, to their end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Measurement
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.forms import Compared
from hlotune.search.progress import Event
from hlotune.search.result import TuneResult
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision, own_final
from hlotune.tuning_logs.finals import Final, Paired, Whole
from tests.support.sessions import (
    PROGRAM,
    UNDER,
    WHOLE,
    FakeDevice,
    FakeProgram,
    Objects,
    run,
    started,
    two,
)

SLOWER = replace(
    WHOLE,
    paired=Paired(default_s=(1.0,), tuned_s=(1.25,), speedup=0.8, low=0.7, high=0.9),
)
LITTLE = replace(WHOLE, paired=replace(WHOLE.paired, speedup=1.1, low=1.05, high=1.2))  # type: ignore[type-var]
SHORT = replace(LITTLE, falls_short=True)


class Near(FakeDevice):
    """Finals of some kernels have a best candidate that takes so many times as long as the default,
    by label."""

    behind: ClassVar[dict[str, float]] = {}

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        found = super().final(kernel, objects, pairs)
        behind = self.behind.get(self._task(kernel).label)
        if behind is None:
            return found
        best_s = min(c.time_s for c in found.candidates if isinstance(c, Measurement))
        default = Measurement(samples_s=(best_s / behind,) * pairs)
        return Comparison(default, found.candidates)


Faster = Callable[[Sequence[str], Sequence[str]], bool | Compared]


def ended(
    database: Database,
    alone: Whole | None,
    faster_with: Faster,
    *,
    together: Whole | None = WHOLE,
    behind: float = 1.1,
    conv_wins: bool = True,
    tasks: Sequence[Task] = (),
    events: list[Event] | None = None,
    places: Sequence[Any] = (),
    is_long: bool = False,
) -> TuneResult:
    """A run in which the best candidates of all kernels but `conv` take `behind` times as long as
    their defaults, and of that too where it does not win.

    `alone` is the comparison of the program with what won alone, `together` that with more.
    """
    tasks = tasks or two()
    device = Near(tasks)
    Near.behind = {t.label: behind for t in tasks if t.label != "conv" or not conv_wins}
    whole = FakeProgram(
        lambda: alone, with_undecided=lambda also: together, faster_with=faster_with,
        is_long=is_long,
    )  # fmt: skip
    return run(database, tasks, device, whole=whole, events=events, places=places)


def always(base: Sequence[str], more: Sequence[str]) -> bool:
    return True


def never(base: Sequence[str], more: Sequence[str]) -> bool:
    return False


def with_all(base: Mapping[str, Final], more: Mapping[str, Final], confidence: float) -> Compared:
    return Compared(is_faster=True, standing=frozenset({*base, *more}))


def algorithms(database: Database, result: TuneResult, program: str | None) -> list[str]:
    found = (decision(database, k.key, program=program, **UNDER) for k in result.kernels)
    return [d.schedule.algorithm for d in found]


def taking(tuned_s: float) -> Whole:
    """A program that gains what its kernels promise and takes so long with what won alone."""
    paired = Paired(default_s=(2 * tuned_s,), tuned_s=(tuned_s,), speedup=2.0, low=1.9, high=2.1)
    return replace(WHOLE, paired=paired)


def kept_later(database: Database, result: TuneResult, program: str) -> None:
    """A later run of a program, which finds that the second kernel keeps its default."""
    key = result.kernels[1].key
    stands = own_final(database, result.run, key)
    assert stands is not None
    slower = replace(stands.paired, speedup=0.5, low=0.45, high=0.55)
    identity = replace(PROGRAM, key=program)
    later = started(database, two(), Limits(trials=1), seed=1, program=identity)
    kept = replace(stands, outcome="kept default", paired=slower)
    database.record_final(later, database.kernel(key), kept)

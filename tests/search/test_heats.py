"""Who comes out of a heat: the crowd of near equals, measured again."""

from collections.abc import Mapping, Sequence

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.search.finals.heats import (
    BEHIND,
    CHAMPIONS,
    MOST,
    Heat,
    champions_met,
    crowd,
    heat,
    heat_size,
)  # fmt: skip
from hlotune.search.tuner import KernelTuner
from tests.support.tuners import KERNEL, FakeRunner, Log, space, tuner


def candidate(number: int) -> Candidate:
    return Candidate(KERNEL, Schedule("direct", (Split("out", "i0", (number,)),)))


def number(candidate: Candidate) -> int:
    step = candidate.schedule.steps[0]
    assert isinstance(step, Split)
    return step.factors[0]


class Device(FakeRunner):
    """Measures what it is told of each number, one outcome after the other."""

    def __init__(self, outcomes: Mapping[int, list[Outcome]] | None = None) -> None:
        super().__init__(space())
        self.outcomes = dict(outcomes or {})
        self.met: list[list[int]] = []

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        self.met.append([number(c) for c, _ in objects])
        return [Trial(c, self.outcomes[number(c)].pop(0)) for c, _ in objects]


def seconds(*times_s: float) -> list[Outcome]:
    return [Measurement(samples_s=(time_s,)) for time_s in times_s]


def tuning(device: Device, trials: int) -> KernelTuner:
    """With trials of candidates 20, 21, ..., each a little slower than the one before it."""
    found = tuner(Log(), space(), runner=device)
    found.know([Trial(candidate(20 + n), seconds(1 + n / 100)[0]) for n in range(trials)])
    return found


def test_one_in_eight_is_in_a_heat_and_few_need_none() -> None:
    assert [heat_size(n) for n in (0, 31, 32, 64, 127, 128, 10_000)] == [0, 0, 4, 8, 15, 16, MOST]
    assert heat(tuning(Device(), 31)) == Heat()


def test_a_heat_puts_the_crowd_in_the_order_of_two_new_trials() -> None:
    outcomes = {
        20: seconds(1.0, 5.0), 21: seconds(2.0, 1.0), 22: seconds(2.0, 2.0), 23: seconds(0.5, 3.0),
    }  # fmt: skip
    device = Device(outcomes)
    found = heat(tuning(device, 32))
    assert [number(c) for c in found.order] == [21, 23, 22, 20]
    assert found.failed == ()
    assert device.met == [[20, 21, 22, 23], [23, 22, 21, 20]]


def test_who_fails_in_a_heat_is_out_and_told_once_but_mishaps_are_no_failures() -> None:
    wrong, mishap = Failure("wrong_result", "a lost tap"), Failure("device", "too fast")
    outcomes: dict[int, list[Outcome]] = {
        20: [wrong, wrong], 21: seconds(1.0, 1.0), 22: [*seconds(1.0), mishap],
        23: seconds(0.9, 0.9),
    }  # fmt: skip
    found = heat(tuning(Device(outcomes), 32))
    assert [number(c) for c in found.order] == [23, 21]
    assert found.failed == (Trial(candidate(20), wrong),)


def test_who_is_far_behind_the_best_is_no_champion_and_in_no_heat() -> None:
    device = Device()
    found = tuning(device, 0)
    found.know([Trial(candidate(n), seconds(1 + n / 10)[0]) for n in range(40)])
    assert crowd(found, CHAMPIONS) == [candidate(0), candidate(1), candidate(2)]
    assert found.near(BEHIND) == len(crowd(found, MOST)) == 3
    assert heat_size(40, found.near(BEHIND)) == 0
    assert heat(found) == Heat()
    assert device.met == []


def test_a_final_is_expected_to_have_the_first_candidate_too_where_it_is_not_near() -> None:
    device = Device()
    found = tuning(device, 1)
    assert champions_met(found, near=1) == 1
    toy = space()
    first = Candidate(KERNEL, toy.schedule(toy.heuristic()))
    found.know([Trial(first, seconds(1.9)[0])])
    assert champions_met(found, near=1) == 2 and champions_met(found, near=5) == CHAMPIONS
    found.reject([Trial(first, Failure("wrong_result", "a lost tap"))])
    assert champions_met(found, near=1) == 1

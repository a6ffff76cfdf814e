"""Which kernels are decided by their first candidates, by what they are expected to take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlotune.codegen.built import Built
from hlotune.costmodel.trees import Trees
from hlotune.measure.trial import Candidate, Failure
from hlotune.search.budget.contest import Contest, Decided
from hlotune.search.finals.quick import Quick
from hlotune.search.tasks import Task
from hlotune.search.tuner import Took
from tests.support.costly_device import contest, several
from tests.support.sessions import FakeDevice

TASKS = several(12)


@dataclass(kw_only=True)
class Timed(Quick):
    """Decides each kernel in so many seconds; some fail."""

    take_s: Callable[[Task], float]
    fails: Callable[[Task], bool]
    begun: list[str] = field(default_factory=list)
    asked: int = 0
    now_s: float = 0.0

    def _decided(self, task: Task, candidate: Candidate, built: Built | Failure) -> Contest | None:
        self.begun.append(task.label)
        self.now_s += self.take_s(task)
        return None if self.fails(task) else contest(TASKS.index(task), Took())


def quick(
    seconds: float,
    *,
    cost_s: Callable[[Task], float],
    take_s: Callable[[Task], float],
    fails: Callable[[Task], bool] = lambda task: False,
) -> Timed:
    nothing: Any = None

    def left_s() -> float:
        found.asked += 1
        return seconds - found.now_s

    found = Timed(
        model=Trees(), builder=FakeDevice(TASKS), referee=nothing, database=nothing, run="",
        opened=nothing, clock=lambda: found.now_s, left_s=left_s, done=Decided(),
        compile_together=lambda objects: None, cost_s=cost_s, take_s=take_s, fails=fails,
    )  # fmt: skip
    return found


def labels(tasks: Sequence[Task]) -> list[str]:
    return [task.label for task in tasks]


def test_kernels_that_fail_at_once_say_nothing_about_what_others_take() -> None:
    costly = TASKS[4]
    found = quick(
        10.0, cost_s=lambda t: 30.0 if t is costly else 5.0, take_s=lambda t: 0.01,
        fails=lambda t: t in TASKS[:4],
    )  # fmt: skip
    decided = list(found.decide(list(TASKS[:6])))
    assert found.begun == labels([*TASKS[:4], TASKS[5]])
    assert labels([c.task for c in decided]) == ["conv5"]


def test_the_first_kernel_is_begun_whatever_it_is_expected_to_take() -> None:
    found = quick(4.0, cost_s=lambda t: 9.0, take_s=lambda t: 5.0)
    list(found.decide(list(TASKS[:2])))
    assert found.begun == ["conv0"]


def test_kernels_that_are_faster_than_expected_make_room_for_others() -> None:
    found = quick(10.0, cost_s=lambda t: 2.0, take_s=lambda t: 1.0)
    list(found.decide(list(TASKS)))
    assert found.begun == labels(TASKS[:10])


def test_what_is_left_is_asked_for_once_a_decision_and_not_for_each_that_waits() -> None:
    late = quick(1.0, cost_s=lambda t: 2.0, take_s=lambda t: 1.0)
    list(late.decide(list(TASKS)))
    assert (late.begun, late.asked) == (["conv0"], 1 + 1 + 1)
    some = quick(4.0, cost_s=lambda t: 1.0, take_s=lambda t: 1.0)
    list(some.decide(list(TASKS)))
    assert (len(some.begun), some.asked) == (4, 1 + 1 + 4)

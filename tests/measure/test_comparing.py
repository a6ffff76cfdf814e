"""How long the rounds of a comparison go on, by what its checks took."""

from typing import cast

import pytest

from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.timing import BRIEF_S, BRIEF_SHARE
from hlotune.measure.trial import Candidate, Failure
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.wire import from_outcome
from hlotune.schedules.steps.schedule import Schedule
from tests.support.tiny_dot import kernel, tiny_dot


class SlowChecks:
    """A worker whose checks take so many seconds of a clock that goes on by nothing else, half of
    them, where another tuner is at work, its own."""

    def __init__(self, check_s: float, *, is_alone: bool) -> None:
        self.check_s = check_s
        self.is_alone = is_alone
        self.now_s = 0.0
        self.turns = Turns(now=lambda: self.now_s)
        self.brief_s = 0.0

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        if message.header["do"] == "verify":
            self.now_s += self.check_s if self.is_alone else 2 * self.check_s
            self.turns.waited(0.0 if self.is_alone else self.check_s)
            return Message({"is": "verdict", "error": 0.0, "numerics": "strict"})
        self.brief_s = message.header["brief_s"]
        samples_s = [[2.0] * 9, *[[1.0] * 9] * 2]
        return Message({"is": "comparison", "samples_s": samples_s, "behind": []})

    def close(self) -> None: ...


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(
    ("check_s", "brief_s"), ((0.0, BRIEF_S), (0.1, BRIEF_S), (5.0, BRIEF_SHARE * 10.0))
)
def test_rounds_go_on_for_a_share_of_what_all_checks_took(
    check_s: float, brief_s: float, is_alone: bool
) -> None:
    worker = SlowChecks(check_s, is_alone=is_alone)
    runner = ProcessRunner(host_target(), cache="warm", turns=worker.turns)
    runner._channel = cast(Channel, worker)
    candidate = Candidate(kernel(), Schedule("direct"))
    runner.compare(kernel(), [(candidate, tiny_dot())] * 2, pairs=9)
    assert worker.brief_s == pytest.approx(brief_s)


class Sifting:
    """A worker that finds candidates wrong by their turn, and leaves one behind."""

    def __init__(self, *right: bool) -> None:
        self.right, self.staying = iter(right), -1

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        if message.header["do"] == "verify":
            if not next(self.right):
                return Message(from_outcome(Failure("wrong_result", "a lost tap")))
            return Message({"is": "verdict", "error": 0.0, "numerics": "strict"})
        self.staying = message.header["staying"]
        samples_s = [[3.0] * 9, [1.0] * 9, [2.0] * 3]
        return Message({"is": "comparison", "samples_s": samples_s, "behind": [1]})

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("right", "staying", "behind"),
    [
        ((True, True), 1, {1}),
        ((False, True, True), 0, {2}),
        ((True, False, True), 1, {2}),
        ((True, True, False), 1, {1}),
    ],
)
def test_who_stays_and_who_is_behind_are_told_by_their_numbers_whoever_is_wrong(
    right: tuple[bool, ...], staying: int, behind: set[int]
) -> None:
    runner = ProcessRunner(host_target(), cache="warm")
    worker = Sifting(*right)
    runner._channel = cast(Channel, worker)
    candidate = Candidate(kernel(), Schedule("direct"))
    objects = [(candidate, tiny_dot())] * len(right)
    found = runner.compare(kernel(), objects, pairs=9, staying=1)
    assert (worker.staying, found.behind) == (staying, frozenset(behind))
    assert [isinstance(c, Failure) for c in found.candidates] == [not r for r in right]

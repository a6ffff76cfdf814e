"""Answers of the oracle are made by one thread while another one calls the kernel."""

import threading

import pytest

from hlotune.measure.trial import Failure
from hlotune.measure.verification.answers import Answers
from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.inputs import InputKind
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.errors import UnsupportedKernel
from tests.support.tiny_dot import FAULTS, kernel, tiny_dot


class Watched(References):
    """Notes which thread makes which case; one kind of inputs may fail."""

    def __init__(self, fails: InputKind | None = None) -> None:
        super().__init__(kernel())
        self.made, self.fails = list[tuple[str, InputKind, int]](), fails

    def case(self, kind: InputKind, seed: int = 0, outputs: int = 0) -> Case:
        self.made.append((threading.current_thread().name, kind, seed))
        if kind == self.fails:
            raise UnsupportedKernel("expected numbers, got none")
        return super().case(kind, seed, outputs)


def others() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("answers")]


def test_one_thread_alone_makes_all_cases_and_none_is_left() -> None:
    references = Watched()
    verdict = verify(kernel(), tiny_dot(), thorough=True, references=references)
    assert isinstance(verdict, Verdict)
    assert {name for name, *_ in references.made} == {"answers_0"}
    kinds = dict.fromkeys((kind, seed) for _, kind, seed in references.made)
    assert list(kinds)[:2] == [("integers", 0), ("normal", 0)]
    assert not others()


def test_what_is_known_needs_no_thread_and_gives_the_same_verdict() -> None:
    references = Watched()
    first = verify(kernel(), tiny_dot(), thorough=True, references=references)
    references.made.clear()
    again = verify(kernel(), tiny_dot(), thorough=True, references=references)
    assert first == again
    assert {name for name, *_ in references.made} == {threading.current_thread().name}


def test_a_case_that_cannot_be_made_says_so_when_its_turn_comes() -> None:
    found = verify(kernel(), tiny_dot(), thorough=True, references=Watched(fails="special"))
    assert isinstance(found, Failure)
    assert "expected numbers" in found.message
    assert not others()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_is_wrong_leaves_no_thread_at_work(fault: str) -> None:
    found = verify(kernel(), tiny_dot(FAULTS[fault]), thorough=True, references=Watched())
    assert isinstance(found, Failure)
    assert not others()


def test_what_is_being_made_is_waited_for_and_the_rest_is_not_begun() -> None:
    begun, go_on, references = threading.Event(), threading.Event(), Watched()

    def slow() -> int:
        begun.set()
        go_on.wait(10)
        return 1

    with Answers(references) as answers:
        first = answers.soon(slow)
        answers.begin("normal", 0)
        begun.wait(10)
        threading.Timer(0.05, go_on.set).start()
    assert first.result() == 1
    assert not references.made

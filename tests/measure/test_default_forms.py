"""Which form of the default a kernel is compared with: constants as operands, or in its text."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.timing import Subject, always_apart
from hlotune.measure.workers import device_handler
from hlotune.measure.workers.channel import Message
from tests.support.tiny_dot import kernel, tiny_dot

MS = 1e-3


@dataclass
class Forms:
    """Stands for the bench of a kernel whose default has forms that take so many seconds."""

    forms_s: tuple[float, ...]
    asked: list[tuple[bool, bool]] = field(default_factory=list)
    """Whether calls were said to be long, and whether constants were to be in the text."""

    def default(
        self, clock: str, *, is_long: bool = False, baked: bool = True
    ) -> tuple[Subject, ...]:
        self.asked.append((is_long, baked))
        return tuple(_taking(s) for s in (self.forms_s if baked else self.forms_s[:1]))

    def candidate(self, built: Any, place: str, clock: str) -> Subject:
        return _taking(1 * MS)


def _taking(seconds: float) -> Subject:
    return Subject(lambda: seconds, lambda: 0.0)


def compared(forms: Forms, monkeypatch: pytest.MonkeyPatch) -> float:
    """The default's median in a comparison that comes behind timing it alone."""
    monkeypatch.setattr(device_handler, "_better_form", {})
    monkeypatch.setattr(device_handler, "_settled", lambda header: host_target())
    monkeypatch.setattr(device_handler, "_bench", lambda kernel, target, cache: forms)
    monkeypatch.setattr(device_handler, "_apart", lambda target: always_apart)
    asked = {"kernel": kernel().text, "cache": "warm", "clock": "call"}
    device_handler._default(Message(asked))
    forms.asked.clear()
    blob = tiny_dot().to_bytes()
    found = device_handler._compare(
        Message({**asked, "sizes": [len(blob)], "pairs": 9, "limit_s": 1.0}, blob)
    )
    default_s: list[float] = sorted(found.header["samples_s"][0])
    return default_s[len(default_s) // 2]


@pytest.mark.parametrize(
    ("forms_s", "baked"), [((3 * MS, 2 * MS), True), ((2 * MS, 3 * MS), False)]
)
def test_the_form_that_was_clearly_faster_alone_is_the_only_one_compared(
    forms_s: tuple[float, ...], baked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = Forms(forms_s)
    assert compared(forms, monkeypatch) == 2 * MS
    assert forms.asked == [(False, baked)]


def test_forms_that_are_nearly_as_fast_are_timed_in_turns_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forms = Forms((2.2 * MS, 2 * MS))
    assert compared(forms, monkeypatch) == 2 * MS
    assert forms.asked == [(False, True)]


def test_calls_that_were_long_alone_need_no_run_up(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = Forms((2.0, 2.1))
    assert compared(forms, monkeypatch) == 2.0
    assert forms.asked == [(True, False)]

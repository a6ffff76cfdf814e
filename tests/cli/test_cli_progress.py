"""What a run shows while it goes."""

import time
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from hlotune.cli import progress as shown
from hlotune.cli.progress import View, line, telling, watching
from hlotune.search.progress import (
    Batch,
    Event,
    Finalising,
    Finished,
    KernelSkipped,
    KernelStarted,
    KernelStopped,
    Started,
)

BATCH = Batch(
    key="a",
    label="dot 64x784x512",
    kernels_begun=1,
    kernels=3,
    trials=64,
    failures=2,
    best_s=1e-4,
    default_s=2e-4,
    gflops=512.3,
    peak_share=0.75,
    rank_correlation=0.5,
    elapsed_s=10.0,
    remaining_s=50.0,
)
KERNEL = KernelStarted(
    key="a", label="dot 64x784x512", index=1, count=3, default_s=2e-4, known_trials=0
)
FINISHED = Finished(
    trials=64, won=1, kernels=3, speedup=1.25, speedup_low=1.2, speedup_high=1.3, wall_s=60.4
)
UNCLEAR = replace(FINISHED, speedup_low=0.9)
UNTIMED = replace(FINISHED, speedup=None, speedup_low=None, speedup_high=None)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Started(kernels=3, known_trials=7), "3 kernels, 7 trials known"),
        (
            Started(kernels=3, known_trials=0, model="trees, untrained"),
            "3 kernels, 0 trials known; model: trees, untrained",
        ),
        (
            Started(kernels=3, known_trials=7, own_trials=64),
            "3 kernels, 64 trials done, 7 trials known",
        ),
        (KERNEL, "[1/3] dot 64x784x512: default 200 us"),
        (
            replace(KERNEL, default_slow_s=3.9e-4),
            "[1/3] dot 64x784x512: default 200 us, in its slow mode 390 us",
        ),
        (
            replace(KERNEL, default_error=37.04),
            "[1/3] dot 64x784x512: default 200 us; XLA's own result does not agree with the "
            "reference: it is off by 37 times its bound",
        ),
        (KernelSkipped(label="fft", reason="no compute"), "fft: left to XLA, no compute"),
        (
            KernelStopped(label="fft", reason="a fault of hlotune: ValueError"),
            "fft: search ended early, a fault of hlotune: ValueError",
        ),
        (BATCH, "best 100 us of 200 us, 512.3 GFLOP/s, 75% of peak, 50 s left"),
        (replace(BATCH, is_estimate=True), "75% of peak, about 50 s left"),
        (Finalising(kernels=3, interrupted=True), "interrupted: comparing champions of 3 kernels"),
        (
            Finalising(kernels=2, interrupted=False, settled=True),
            "no kernel promises more than 1 %: comparing champions of 2 kernels with the",
        ),
        (Finalising(kernels=1, interrupted=False), "comparing champions of 1 kernel with the"),
        (Started(kernels=1, known_trials=1), "1 kernel, 1 trial known"),
        (FINISHED, "64 trials in 60.4 s: 1 of 3 kernels won, whole program: 1.25x (95 %"),
        (UNCLEAR, "1 of 3 kernels won, whole program: no difference proven"),
        (UNTIMED, "64 trials in 60.4 s: 1 of 3 kernels won"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_event_is_said_in_one_line(event: Event, words: str) -> None:
    assert words in line(event)
    assert "\n" not in line(event)


def test_the_live_table_shows_the_latest_of_each_kernel() -> None:
    view = View()
    for event in (Started(kernels=3, known_trials=0), KERNEL, BATCH):
        view.update(event)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(view)
    text = captured.get()
    for part in ("dot 64x784x512", "200 us", "100 us", "2.00x", "512.3", "75%", "50 s left"):
        assert part in text
    assert text.count("dot 64x784x512") == 1


def test_two_kernels_of_one_label_have_two_rows() -> None:
    view = View()
    for event in (KERNEL, BATCH, replace(KERNEL, key="b")):
        view.update(event)
    assert view.table().row_count == 2


def test_a_kernel_where_everything_failed_has_no_best() -> None:
    view = View()
    view.update(replace(BATCH, best_s=None, gflops=None, peak_share=None))
    assert [str(cell) for cell in view.table().columns[2].cells] == ["-"]


def test_without_a_terminal_each_event_is_a_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with watching() as progress:
        progress(FINISHED)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == line(FINISHED) + "\n"


def test_in_a_terminal_a_table_lives_below_the_lines_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = StringIO()
    terminal = Console(file=out, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(shown, "Console", lambda **_: terminal)
    with watching() as progress:
        for event in (Started(kernels=3, known_trials=7), KERNEL, BATCH, FINISHED):
            progress(event)
    text = out.getvalue()
    assert line(Started(kernels=3, known_trials=7)) in text
    assert line(FINISHED) in text
    assert "dot 64x784x512" in text, "the table"
    assert line(BATCH) not in text, "which the table says"


def test_quiet_watching_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as progress:
        progress(FINISHED)
    assert capsys.readouterr() == ("", "")


def test_what_is_done_next_is_written_over_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(shown, "Console", lambda **_: console)
    with telling() as tell:
        tell("reading [1]")
        time.sleep(0.2)
        tell("learning")
        time.sleep(0.2)
    printed = out.getvalue()
    assert "reading [1]" in printed and "learning" in printed
    assert not [line for line in printed.splitlines() if "reading" in line and "learning" in line]


def test_what_is_done_next_is_a_line_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with telling() as tell:
        tell("reading")
        tell("learning")
    assert capsys.readouterr() == ("", "reading\nlearning\n")

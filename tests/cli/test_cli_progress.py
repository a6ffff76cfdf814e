"""What a run shows while it goes."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from hlotune.cli import progress as shown
from hlotune.cli.live_view import VISIBLE_KERNELS, View, sparkline
from hlotune.cli.progress import line, telling, watching
from hlotune.search.progress import (
    Batch,
    Event,
    Finalising,
    Finished,
    FormTried,
    KernelAtLimit,
    KernelSkipped,
    KernelStarted,
    KernelStopped,
    Started,
)
from tests.support.soon import soon

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
    limit_s=8e-5,
    kernel_trials=64,
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
        (
            KernelAtLimit(key="k", label="softmax 512x1024", share=0.96),
            "softmax 512x1024: stopped: at 96% of its limit",
        ),
        (
            FormTried(labels=("sum 8192x768", "exp 12"), is_faster=True),
            "sum 8192x768, exp 12: not proven faster alone, tried in the program, which is faster",
        ),
        (FormTried(labels=("exp 12",), is_faster=False), "the program, which is not faster so"),
        (
            FormTried(labels=("exp 12",), is_faster=False, without=True),
            "exp 12: little faster alone, tried without: the program is not faster, so it stays",
        ),
        (
            FormTried(labels=("exp 12",), is_faster=True, without=True),
            "exp 12: little faster alone, left out of the program, which is faster so",
        ),
        (BATCH, "best 100 us of 200 us, 512.3 GFLOP/s, 75% of peak, 50 s left"),
        (replace(BATCH, is_estimate=True), "75% of peak, about 50 s left"),
        (Finalising(kernels=3, interrupted=True), "interrupted: comparing champions of 3 kernels"),
        (
            Finalising(kernels=2, interrupted=False, settled=True),
            "no kernel promises more than 1 %: comparing champions of 2 kernels with the",
        ),
        (Finalising(kernels=0, interrupted=False), "no kernel to compare with its default"),
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
    for part in ("dot 64x784x512", "64", "100 us", "2.00x", "80%", "100%", "50 s left", "█"):
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
    assert "1.00x by the search's own times" in "".join(view.status())


WIDE = replace(
    BATCH, label="conv2d 56x56x64->64 k3 s1 +scale+add+relu", failed=("timeout", "crash", "timeout")
)


def drawn(view: View, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_the_live_table_is_calm_in_a_narrow_terminal(width: int) -> None:
    """A line a kernel, no figure cut: columns go where there is no room for them."""
    view = View(load=lambda: 0.25)
    for number in range(3):
        view.update(replace(WIDE, key=str(number), label=f"{number} {WIDE.label}"))
    lines = drawn(view, width).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if "conv2d 56x56" in line]
    assert len(rows) == 3 and all("100 us" in row and "2.00x" in row for row in rows)
    assert ("80%" in rows[0]) == (width >= 80)


def test_the_live_view_says_failures_by_kind_and_how_busy_the_machine_is() -> None:
    view = View(load=lambda: 0.25)
    view.update(WIDE)
    text = drawn(view, 100)
    assert "failed: 2 timeout, 1 crash" in text
    assert "other processes take 25% of the processors" in text
    assert "200 us -> 100 us a run, 2.00x by the search's own times, not proven yet" in text


def test_the_wait_before_the_first_trial_is_explained() -> None:
    view = View()
    assert "finding its kernels" in drawn(view, 80)
    view.update(Started(kernels=3, known_trials=0))
    assert "timing the defaults of 3 kernels" in " ".join(drawn(view, 80).split())


def test_kernels_stand_by_their_share_and_the_least_are_counted() -> None:
    view = View()
    for number in range(VISIBLE_KERNELS + 4):
        view.update(replace(BATCH, key=str(number), label=f"k{number} ", calls=number + 1.0))
    text = drawn(view, 100)
    assert text.index(f"k{VISIBLE_KERNELS + 3} ") < text.index("k7 ")
    assert "and 4 more" in text and "k0 " not in text


def test_a_sparkline_falls_as_the_best_time_does() -> None:
    assert sparkline([4.0, 2.0, 1.0]) == "█▅▃"
    assert sparkline([]) == ""


def test_events_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(events=True) as progress:
        progress(BATCH)
        progress(FINISHED)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["Batch", "Finished"]
    assert (lines[0]["best_s"], lines[0]["limit_s"], lines[1]["speedup"]) == (1e-4, 8e-5, 1.25)


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

    def shows(words: str) -> bool:
        return soon(lambda: words in out.getvalue(), 0.05)

    with telling() as tell:
        tell("reading [1]")
        assert shows("reading [1]")
        tell("learning")
        assert shows("learning")
    printed = out.getvalue()
    assert not [line for line in printed.splitlines() if "reading" in line and "learning" in line]


def test_what_is_done_next_is_a_line_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with telling() as tell:
        tell("reading")
        tell("learning")
    assert capsys.readouterr() == ("", "reading\nlearning\n")

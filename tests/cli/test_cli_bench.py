"""What `tune bench` says first."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hlotune.cli import bench
from hlotune.cli.bench import APART, CLOCKS, accuracy_cells, print_accuracy, print_result
from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import Explanation
from hlotune.deploy.bench_result import BenchResult
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.trial import Failure
from hlotune.tuning_logs.finals import Paired
from hlotune.tuning_logs.render import BEYOND


def tuned() -> Explanation:
    """A site whose default was replaced."""
    (site, *_) = sites(load(lambda x: x @ x, np.ones((4, 4), np.float32)))
    return Explanation(site=site, status="tuned", reason="by hand")


def result(default_s: tuple[float, ...], tuned_s: tuple[float, ...]) -> BenchResult:
    return BenchResult(
        program="model",
        default_s=default_s,
        tuned_s=tuned_s,
        calls_per_sample=1,
        accuracy=(),
        drawn_arguments=(),
        kernels=(tuned(),),
        packed_bytes=0,
    )


def paired(speedup: float) -> Paired:
    return Paired(
        default_s=(speedup * 1e-3,) * 8, tuned_s=(1e-3,) * 8,
        speedup=speedup, low=speedup - 0.1, high=speedup + 0.1,
    )  # fmt: skip


def with_kernel(again: Paired | Failure | None) -> BenchResult:
    """A result of one kernel, which a run found twice as fast as its default."""
    kernel = replace(tuned(), paired=paired(2.0))
    key = kernel.site.kernel.key
    found = result((2e-3,) * 8, (1e-3,) * 8)
    return replace(found, kernels=(kernel,), again={} if again is None else {key: again})


def row(said: str) -> str:
    """The row of the kernel, in what was printed."""
    (line,) = [x for x in said.splitlines() if "dot 4x4x4" in x]
    return line


def headline(capsys: pytest.CaptureFixture[str], found: BenchResult) -> str:
    print_result(found)
    return capsys.readouterr().out.splitlines()[1]


def test_a_proven_gain_is_told_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((2e-3,) * 8, (1e-3,) * 8))
    assert text == "speedup: 2.00x (95 % interval 2.00 to 2.00), 8 pairs of 1 call"


TWO_MODES = (1.3e-3, 2.5e-3, 2.4e-3, 1.3e-3, 2.5e-3, 2.6e-3, 2.5e-3, 2.5e-3)


def test_a_default_program_in_two_modes_is_said_to_be_and_counts_by_its_fast_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = result(TWO_MODES, (1e-3,) * 8)
    print_result(found)
    first, gain, modes, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("model: default 1.30 ms, tuned 1.00 ms")
    assert gain.startswith("speedup: 1.30x (95 % interval 1.30 to 1.30)")
    assert modes == (
        "the default program ran in two modes, 1.30 ms and, in 75% of its samples, 2.50 ms, as its "
        "threads shared a processor; speedups are over the fast one"
    )
    told = found.to_json()
    assert (told["default_s"], told["default_slow_s"]) == (1.3e-3, 2.5e-3)
    assert found.gained_s == pytest.approx(0.3e-3)


def test_a_kernel_whose_default_is_in_two_modes_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = with_kernel(replace(paired(1.3), default_s=TWO_MODES))
    print_result(found)
    said = capsys.readouterr().out
    (key,) = found.again
    assert "1.30 ms" in row(said)
    assert f"the default of {key[:8]} ran in two modes, 1.30 ms and" in said
    assert "the default program ran in two modes" not in said


def test_one_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result((2e-3,) * 8, (1e-3,) * 8))
    said = capsys.readouterr().out
    assert "1 site replaced by 1 kernel\n" in said
    assert "1 more site: alternatives, or without a record" in said


def test_packed_constants_are_told_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    without = result((2e-3,) * 8, (1e-3,) * 8)
    print_result(without)
    assert "packed" not in capsys.readouterr().out
    print_result(replace(without, packed_bytes=3 << 20))
    told = "with 3 MiB of packed constants in memory, beside the program's own\n"
    assert told in capsys.readouterr().out


def test_a_gain_inside_the_noise_is_not_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((1.1e-3, 0.9e-3) * 8, (1e-3,) * 16))
    assert text.startswith("speedup: no difference proven, the 95 % interval 0.90 to 1.10")


def test_where_nothing_is_replaced_noise_is_not_told_as_a_speedup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = replace(result((2e-3,) * 8, (1e-3,) * 8), kernels=())
    assert headline(capsys, same).startswith("speedup: none, the default runs on both sides")


def test_what_was_not_asked_of_the_oracle_is_said_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = Accuracy(
        inputs="example", result=0, default_error=None, tuned_error=1e-7, unchecked="out of time"
    )
    print_accuracy([late, replace(late, inputs="random")])
    said = capsys.readouterr().out
    assert said.count("results are held against it: out of time") == 1
    assert late.to_json()["unchecked"] == "out of time"


def test_too_few_pairs_prove_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((2e-3,) * 5, (1e-3,) * 5))
    assert "no difference proven, the 95 % interval 0.00 to unknown" in text


def test_what_could_not_be_compared_is_not_told_as_an_error_of_nothing() -> None:
    nan = float("nan")
    lost = Accuracy(inputs="random", result=0, default_error=nan, tuned_error=nan, compared=0.0)
    assert accuracy_cells(lost) == ("random", "0", "not checked", "not checked", "0 %")
    part = Accuracy(inputs="random", result=0, default_error=None, tuned_error=1e-7, compared=0.25)
    assert accuracy_cells(part)[2:] == ("1e-07", "not known", "25.0000%")


def test_what_a_kernel_gains_now_stands_beside_what_its_record_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = with_kernel(paired(1.5))
    print_result(found)
    said = row(capsys.readouterr().out)
    assert "1.50 ms" in said and "1.00 ms" in said
    assert said.index("1.50 [1.40, 1.60]") < said.index("2.00 [1.90, 2.10]")
    (told,) = found.to_json()["kernels"]
    assert (told["speedup"], told["speedup_low"], told["speedup_high"]) == (1.5, 1.4, 1.6)
    assert (told["default_s"], told["recorded_default_s"]) == (1.5e-3, 2e-3)
    assert (told["recorded_speedup"], told["not_measured"]) == (2.0, None)


@pytest.mark.parametrize(("limit_s", "is_said"), [(0.9e-3, False), (1.5e-3, True), (None, False)])
def test_shares_above_the_limit_are_explained(
    limit_s: float | None, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel takes a millisecond."""
    found = with_kernel(paired(1.5))
    limits = {found.kernels[0].site.kernel.key: limit_s} if limit_s else {}
    print_result(found, limits)
    said = capsys.readouterr().out
    assert (BEYOND in said) is is_said
    assert ("150%" in said) is is_said


@pytest.mark.parametrize(("speedup", "is_said"), [(1.5, True), (2.15, False), (2.5, True)])
def test_intervals_that_lie_apart_are_named(
    speedup: float, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recorded one is 1.9 to 2.1."""
    print_result(with_kernel(paired(speedup)))
    said = capsys.readouterr().out
    assert (
        f"of 1 kernel today's interval and the recorded one lie apart: {APART}" in said
    ) is is_said
    assert CLOCKS in said


def test_a_kernel_that_failed_now_has_a_reason_and_no_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = with_kernel(Failure("timeout", "no answer\nwithin 60 s"))
    print_result(found)
    said = capsys.readouterr().out
    key = found.kernels[0].site.kernel.key
    assert f"kernel {key[:8]} was not measured: timeout, no answer within 60 s\n" in said
    assert "not measured" in row(said) and "2.00 [1.90, 2.10]" in row(said)
    assert " ms" not in row(said)
    (told,) = found.to_json()["kernels"]
    assert told["speedup"] is told["default_s"] is told["tuned_s"] is None
    assert told["not_measured"] == "timeout: no answer\nwithin 60 s"


def test_a_kernel_that_was_not_put_in_has_its_record_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = with_kernel(paired(1.5))
    kept = replace(found, kernels=(replace(found.kernels[0], status="kept default"),))
    print_result(kept)
    said = row(capsys.readouterr().out)
    assert "2.00 [1.90, 2.10]" in said and "1.50" not in said
    assert kept.to_json()["kernels"][0]["speedup"] is None


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_ctrl_c_while_kernels_are_timed_shows_the_program(
    is_interrupted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both ways what was compared is shown, with the kernels that were timed by then."""
    found, shown, asked = result((2e-3,) * 8, (1e-3,) * 8), [], []
    key = tuned().site.kernel.key

    def again(*_: object) -> dict[str, Paired]:
        if is_interrupted:
            raise KeyboardInterrupt
        return {key: paired(2.0)}

    def prepared(program: object, **options: object) -> None:
        asked.append((program, options["seed"], options["oracle_limit_s"]))

    monkeypatch.setattr("hlotune.deploy.bench.prepared", prepared)
    monkeypatch.setattr("hlotune.deploy.bench.compared", lambda *_, **__: found)
    monkeypatch.setattr("hlotune.deploy.kernel_times.timed_again", again)
    monkeypatch.setattr(bench, "show", lambda result, *_, **__: shown.append(result))
    timing = bench.Timing(pairs=6, seed=3, oracle_limit_s=9.0, with_rivals=False, json=False)
    function: Any = SimpleNamespace(program="p", target=None)
    with pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        bench.timed(function, tmp_path / "a.db", None, timing)
    assert asked == [("p", 3, 9.0)]
    assert [set(x.again) for x in shown] == [set() if is_interrupted else {key}]

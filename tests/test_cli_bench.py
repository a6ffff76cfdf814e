"""What `tune bench` says first."""

from dataclasses import replace

import numpy as np
import pytest

from hlotune.cli.bench import accuracy_cells, print_accuracy, print_result
from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import Explanation
from hlotune.deploy.bench import BenchResult
from hlotune.hlo.program import load
from hlotune.hlo.sites import sites


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


def headline(capsys: pytest.CaptureFixture[str], found: BenchResult) -> str:
    print_result(found)
    return capsys.readouterr().out.splitlines()[1]


def test_a_proven_gain_is_told_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((2e-3,) * 8, (1e-3,) * 8))
    assert text == "speedup: 2.00x (95 % interval 2.00 to 2.00), 8 pairs of 1 call"


def test_one_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result((2e-3,) * 8, (1e-3,) * 8))
    said = capsys.readouterr().out
    assert "1 site replaced by 1 kernel\n" in said
    assert "1 more site: alternatives, or without a record" in said


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

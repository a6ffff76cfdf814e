"""What `tune bench` says first."""

import pytest

from hlotune.cli.bench import print_result
from hlotune.deploy.bench import BenchResult


def result(default_s: tuple[float, ...], tuned_s: tuple[float, ...]) -> BenchResult:
    return BenchResult(
        program="model",
        default_s=default_s,
        tuned_s=tuned_s,
        calls_per_sample=1,
        accuracy=(),
        drawn_arguments=(),
        kernels=(),
        packed_bytes=0,
    )


def headline(capsys: pytest.CaptureFixture[str], found: BenchResult) -> str:
    print_result(found)
    return capsys.readouterr().out.splitlines()[1]


def test_a_proven_gain_is_told_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((2e-3,) * 8, (1e-3,) * 8))
    assert text == "speedup: 2.00x (95 % interval 2.00 to 2.00), 8 pairs of 1 calls"


def test_a_gain_inside_the_noise_is_not_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((1.1e-3, 0.9e-3) * 8, (1e-3,) * 16))
    assert text.startswith("speedup: no difference proven, the 95 % interval 0.90 to 1.10")


def test_too_few_pairs_prove_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = headline(capsys, result((2e-3,) * 5, (1e-3,) * 5))
    assert "no difference proven, the 95 % interval 0.00 to unknown" in text

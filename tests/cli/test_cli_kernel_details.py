"""`tune kernels` counts operations and says where a program's time goes, on request."""

import json

import pytest

from hlotune.cli import kernel_limits, kernels
from hlotune.cli.kernel_details import Times
from hlotune.cli.main import run_command
from hlotune.hlo.frontends.program import Program
from hlotune.schedules.targets.target import Properties

PROGRAM = "examples/mlp.py:batch_1000"
PEAKS = Properties(flops_per_s={"f32": 1e11}, read_bytes_per_s=1e10, clock_hz=3e9)


@pytest.fixture(autouse=True)
def known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_limits, "peaks_of_today", lambda: PEAKS)


def test_operations_are_listed_before_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kernels", PROGRAM, "--operations"]) == 0
    said = capsys.readouterr().out
    assert said.index("before XLA") < said.index("dot 1000x784x128")
    (row,) = [line.split() for line in said.splitlines() if line.split()[:1] == ["dot"]][:1]
    assert row[1] == "3" and int(row[2]) + int(row[3]) == 3
    assert run_command(["kernels", PROGRAM, "--operations", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"]["dot"]["before"] == 3


def test_each_kernel_has_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(program: Program, by_key: dict[str, object]) -> Times:
        first, *_ = by_key
        return Times(4e-3, {first: 1e-3})

    monkeypatch.setattr(kernels, "measured", measured)
    assert run_command(["kernels", PROGRAM, "--time"]) == 0
    said = capsys.readouterr().out
    assert "alone on XLA" in said and "1.00 ms" in said and "25.0%" in said
    assert "a call of the program takes 4.00 ms" in said
    assert run_command(["kernels", PROGRAM, "--time", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["default_s"] == 4e-3
    assert [k["share_of_time"] for k in told["kernels"][:2]] == [0.25, None]


@pytest.mark.slow
def test_kernels_are_timed_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kernels", PROGRAM, "--time", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["default_s"] > 0
    assert all(k["default_s"] > 0 and k["share_of_time"] > 0 for k in told["kernels"])

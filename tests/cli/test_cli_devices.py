"""Commands and devices that are not here: inspected by the maker's figures, measured elsewhere."""

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import refused
from tests.support.commands import tune

PRODUCT = """func.func @main(%x: tensor<64x128xf32>, %w: tensor<128x256xf32>)
    -> tensor<64x256xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<64x128xf32>, tensor<128x256xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "product.mlir"
    path.write_text(PRODUCT)
    return str(path)


def test_kernels_are_listed_for_a_gpu_that_is_not_here(program: str) -> None:
    data = json.loads(tune("kernels", program, "--target", "cuda:h100", "--json").stdout)
    (kernel,) = data["kernels"]
    assert kernel["sketches"] >= 1
    assert kernel["left_to_xla"] is None
    tf32_flops_per_s = 494e12  # which default precision allows
    assert kernel["roofline_s"] == pytest.approx(2 * 64 * 128 * 256 / tf32_flops_per_s)


def test_kernels_are_listed_for_a_tpu_that_is_not_here(program: str) -> None:
    data = json.loads(tune("kernels", program, "--target", "tpu:v6e", "--json").stdout)
    (kernel,) = data["kernels"]
    assert (kernel["sketches"], kernel["flops"]) == (1, 2 * 64 * 128 * 256)
    assert kernel["left_to_xla"] is None
    moved_bytes = 4 * (64 * 128 + 128 * 256 + 64 * 256)
    assert kernel["roofline_s"] == pytest.approx(
        max(2 * 64 * 128 * 256 / (918e12 / 6), moved_bytes / 1640e9)
    )


@pytest.mark.parametrize("name", ["cuda:h100", "cuda:h200", "cuda:a100", "tpu:v5e", "tpu:v6e"])
def test_a_run_for_a_device_that_is_not_here_says_how_to_carry_it(name: str, program: str) -> None:
    message = refused("run", program, "--target", name, "--trials", "1")
    assert f"expected {name}, and JAX finds no such device here" in message
    assert f"`tune export-candidates PROGRAM FILE --target {name}`" in message


@pytest.mark.parametrize("command", [("run", "--trials", "1"), ("kernels",)])
def test_a_device_that_is_unknown_is_refused(command: tuple[str, ...], program: str) -> None:
    message = refused(command[0], program, *command[1:], "--target", "cuda:moon")
    assert "expected a target of cuda:a100, cuda:h100, cuda:h200, tpu:v5e, tpu:v6e" in message


@pytest.mark.parametrize(("name", "title"), [("cuda:h200", "NVIDIA H200"), ("tpu:v5e", "tpu:v5e")])
def test_candidates_are_written_for_a_device_and_refused_without_it(
    name: str, title: str, program: str, tmp_path: Path
) -> None:
    file, output = tmp_path / "candidates.jsonl", tmp_path / "measured.jsonl"
    done = tune("export-candidates", program, str(file), "--target", name, "--count", "3")
    assert "3 candidates of 1 kernel" in done.stdout
    (line,) = file.read_text().splitlines()
    assert len(json.loads(line)["schedules"]) == 3
    message = refused("measure", str(file), "--output", str(output))
    assert f"expected the device that the candidates are for, {title}" in message
    assert not output.exists()


def test_candidates_that_cannot_be_written_are_one_clear_error(
    program: str, tmp_path: Path
) -> None:
    where = tmp_path / "absent" / "candidates.jsonl"
    message = refused("export-candidates", program, str(where), "--target", "cuda:h200")
    assert f"expected to write to {where}, got no folder for it" in message

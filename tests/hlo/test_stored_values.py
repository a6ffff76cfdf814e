"""Constants whose values stand in resources are read; those that were elided are filled, and said
to be wherever figures of the program are shown."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hlotune.cli.main import run_command
from hlotune.deploy.apply import apply
from hlotune.deploy.artifact import save_artifact
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import Literal, TensorType
from hlotune.hlo.mlir.stored_values import ordinary
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report, to_json
from tests.hlo.test_program import load_text
from tests.support.cut import contractions
from tests.support.recorded import TARGET, TOOLCHAIN

ELIDED = "seeded random values stand there, so times hold and results are not the program's own"
HLO = """HloModule dense
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,16] constant({...})
  v = f32[16,16]{1,0} constant({...}), metadata={op_name="second"}
  y = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[4,16] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def module(handle: str, kind: str, tail: str = "") -> str:
    return f"""func.func @main(%x: tensor<2x2xf32>) -> tensor<{kind}> {{
      %w = stablehlo.constant dense_resource<{handle}> : tensor<{kind}>
      return %w : tensor<{kind}>
    }}{tail}"""


def resources(**data: bytes) -> str:
    listed = ", ".join(f'{name}: "0x04000000{raw.hex().upper()}"' for name, raw in data.items())
    return f"{{-# dialect_resources: {{ builtin: {{ {listed} }} }} #-}}"


def load_hlo(folder: Path, text: str = HLO) -> Program:
    path = folder / "dense.hlo"
    path.write_text(text)
    return load(path)


def constants(program: Program) -> list[np.ndarray]:
    values = [op["value"] for op in program.graph.ops if op.name == "stablehlo.constant"]
    return [v.array() for v in values if isinstance(v, Literal)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("2x2xf32", np.array([[1.5, -2], [3, 4e30]], np.float32)),
        ("3xbf16", np.array([1, -0.5, 3], ml_dtypes.bfloat16)),
        ("2xi64", np.array([-7, 2**40])),
        ("2xui8", np.array([255, 1], np.uint8)),
    ],
)
def test_a_resource_is_the_value_of_its_constant(
    kind: str, values: np.ndarray, tmp_path: Path
) -> None:
    other = np.zeros(3, np.int16).tobytes()
    text = module("w", kind, resources(w_1=other, w=values.tobytes()))
    program = load_text(tmp_path, text)
    np.testing.assert_array_equal(constants(program)[0], values)
    assert program.notes.missing_values == ()


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("", "expected the values of resource w in the module, got none"),
        (resources(w=b"\0" * 12), r"expected 16 bytes in resource w for a tensor<2x2xf32>, got 12"),
    ],
)
def test_a_resource_that_does_not_fit_is_refused(tail: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=message):
        load_text(tmp_path, module("w", "2x2xf32", tail))


def test_elided_constants_of_hlo_are_filled_alike_each_time_and_said_to_be(tmp_path: Path) -> None:
    program, again = load_hlo(tmp_path), load_hlo(tmp_path)
    assert program.notes.missing_values == (
        f"2 constants (1,536 bytes) elided where the program was written: {ELIDED}",
    )
    assert program.key == again.key
    w, v = constants(program)
    assert w.shape != v.shape
    assert len(np.unique(w)) == w.size, "no row of numbers, and nothing twice"
    assert [s.label for s in contractions(program)] == ["dot 4x8x16", "dot 4x16x16"]
    assert np.isfinite(np.asarray(jitted(program)(np.ones((4, 8), np.float32))[0])).all()


def test_elided_constants_of_mlir_are_filled(tmp_path: Path) -> None:
    program = load_text(tmp_path, module("__elided__", "8x4xf32"))
    assert program.notes.missing_values[0].startswith("1 constant (128 bytes) elided")


def test_a_constant_in_a_function_that_is_called_twice_is_one_constant(tmp_path: Path) -> None:
    text = """func.func private @layer(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %w = stablehlo.constant dense_resource<__elided__> : tensor<4x4xf32>
      %y = stablehlo.add %x, %w : tensor<4x4xf32>
      return %y : tensor<4x4xf32>
    }
    func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %y = call @layer(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %z = call @layer(%y) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      return %z : tensor<4x4xf32>
    }"""
    program = load_text(tmp_path, text)
    assert len(constants(program)) == 1
    assert program.notes.missing_values[0].startswith("1 constant (64 bytes)")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8E4M3FN", "complex<f32>"])
def test_a_matrix_keeps_the_size_of_what_it_multiplies(dtype: str) -> None:
    values = ordinary(TensorType((256, 64), dtype), np.random.default_rng(0))
    assert np.std(values.astype(np.complex64)) == pytest.approx(1 / 8, rel=0.1)


@pytest.mark.parametrize("shape", [(64,), (1, 64, 1, 1), ()])
def test_a_vector_is_positive_and_about_one(shape: tuple[int, ...]) -> None:
    values = ordinary(TensorType(shape, "f32"), np.random.default_rng(0)).astype(float)
    assert ((values >= 0.5) & (values < 1.5)).all()


@pytest.mark.parametrize("dtype", ["i1", "i32", "i4", "ui8"])
def test_a_whole_number_is_an_index_that_is_inside(dtype: str) -> None:
    values = ordinary(TensorType((100,), dtype), np.random.default_rng(0))
    assert set(values.astype(int)) == {0, 1}


@pytest.mark.parametrize("header", ["replica_count=2", "num_partitions=4"])
def test_hlo_for_several_devices_is_refused(header: str, tmp_path: Path) -> None:
    text = HLO.replace("HloModule dense", f"HloModule dense, {header}")
    with pytest.raises(ProgramError, match=f"expected a program for one device, got {header}"):
        load_hlo(tmp_path, text)


def test_hlo_for_one_replica_is_read(tmp_path: Path) -> None:
    text = HLO.replace("HloModule dense", "HloModule dense, replica_count=1, num_partitions=1")
    assert len(sites(load_hlo(tmp_path, text))) == 2


def test_an_artifact_never_has_invented_values(tmp_path: Path) -> None:
    Database(tmp_path / "tuning.db").close()
    tuned = apply(load_hlo(tmp_path), database=tmp_path / "tuning.db")
    with pytest.raises(ProgramError, match="a program with all its values, got 2 constants"):
        save_artifact(tuned, tmp_path / "dense.hlotune")


def test_commands_say_beside_figures_that_values_are_invented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_hlo(tmp_path)
    path = str(tmp_path / "dense.hlo")
    assert run_command(["kernels", path]) == 0
    assert f"note: 2 constants (1,536 bytes) elided where the program was written: {ELIDED}" in (
        capsys.readouterr().out
    )
    assert run_command(["kernels", path, "--json"]) == 0
    assert ELIDED in json.loads(capsys.readouterr().out)["notes"][0]
    assert run_command(["apply", path, "-o", str(tmp_path / "a.hlotune")]) == 2
    assert "expected a program with all its values" in capsys.readouterr().err


def test_the_report_of_a_run_has_the_notes_of_its_program(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        run = database.start_run(None, TARGET, TOOLCHAIN, notes=["1 constant elided"])
        found = report(database, run)
    assert "\n1 constant elided\n" in render(found, color=False)
    assert json.loads(to_json(found))["notes"] == ["1 constant elided"]

"""Shardings of programs that JAX lowered: those that only annotate are left out, and that is said;
parts that devices compute for themselves are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from hlotune.cli.main import run_command
from hlotune.deploy.apply import apply
from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import ProgramError
from hlotune.tuning_logs.database import Database
from tests.hlo.test_program import load_text
from tests.support.cut import contractions

pytestmark = pytest.mark.smoke

W, X = np.linspace(-1, 1, 512).reshape(16, 32), np.linspace(0, 1, 128).reshape(8, 16)
ARGUMENTS = W.astype(np.float32), X.astype(np.float32)
SHAPES = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ARGUMENTS)  # type: ignore[no-untyped-call]
FOUR = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def sharded(mesh: Any) -> Any:
    """The layer, whose second argument, product and result are divided among devices."""
    rows, whole = (
        NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
        for axes in (("x",), ())
    )

    def divided(w: Any, x: Any) -> Any:
        return jnp.tanh(jax.lax.with_sharding_constraint(x @ w, rows))  # type: ignore[no-untyped-call]

    return jax.jit(divided, in_shardings=(whole, rows), out_shardings=rows)


def lowered(function: Any) -> str:
    return str(function.trace(*SHAPES).lower(lowering_platforms=("cpu",)).as_text())


def test_shardings_on_one_device_are_left_out_and_said_to_be() -> None:
    program = load(sharded(Mesh(np.array(jax.devices("cpu")[:1]), ("x",))), *ARGUMENTS)
    said = "4 shardings are ignored: hlotune computes this program on one device"
    assert program.remarks == (said,)
    np.testing.assert_allclose(jitted(program)(*ARGUMENTS), layer(*ARGUMENTS), rtol=1e-5, atol=1e-6)


def as_text(path: Path) -> None:
    path.write_text(lowered(sharded(FOUR)))


def as_export(path: Path) -> None:
    exported = export.export(sharded(FOUR), platforms=("cpu",))(*SHAPES)
    assert exported.nr_devices == 4
    path.write_bytes(exported.mlir_module_serialized)


@pytest.mark.parametrize("write", [as_text, as_export])
def test_a_program_that_is_divided_among_devices_is_computed_on_one(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "divided.mlir"
    write(path)
    program = load(path)
    assert program.remarks == (
        "4 shardings are ignored: hlotune computes this program, which was made for 4 devices, on "
        "one device",
    )
    assert [s.label for s in contractions(program)] == ["dot 8x16x32 +tanh", "dot 8x16x32"]
    np.testing.assert_allclose(
        jitted(program)(*ARGUMENTS)[0], layer(*ARGUMENTS), rtol=1e-5, atol=1e-6
    )


def test_shardings_as_xla_had_them_before_shardy_are_left_out(tmp_path: Path) -> None:
    text = """module attributes {mhlo.num_partitions = 2 : i32} {
      func.func @main(%x: tensor<8x8xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"})
          -> tensor<8x8xf32> {
        %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"}
          : (tensor<8x8xf32>) -> tensor<8x8xf32>
        return %0 : tensor<8x8xf32> } }"""
    program = load_text(tmp_path, text)
    assert program.remarks[0].startswith("2 shardings are ignored: ")
    assert not program.graph.ops


def test_a_program_without_shardings_has_nothing_to_say() -> None:
    assert load(jax.jit(layer), *ARGUMENTS).remarks == ()


def summed(mesh: Any) -> Any:
    """A product whose terms are divided among devices, each of which computes its part."""
    spec: Any = PartitionSpec

    def part(w: Any, x: Any) -> Any:
        return jax.lax.psum(x @ w, "x")  # type: ignore[no-untyped-call]

    divided = jax.shard_map(
        part, mesh=mesh, in_specs=(spec("x", None), spec(None, "x")), out_specs=spec()
    )
    return jax.jit(divided)


def test_what_each_device_computes_for_itself_is_refused(tmp_path: Path) -> None:
    message = (
        "expected a program for one device, got sdy.manual_computation, a part that each "
        "device computes for itself; lower it for one device, without shard_map and pmap"
    )
    with pytest.raises(ProgramError, match=message):
        load_text(tmp_path, lowered(summed(FOUR)))
    one = load(summed(Mesh(np.array(jax.devices("cpu")[:1]), ("x",))), *ARGUMENTS)
    np.testing.assert_allclose(
        jitted(one)(*ARGUMENTS), ARGUMENTS[1] @ ARGUMENTS[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("body", "attributes", "message"),
    [
        (
            """%0 = stablehlo.custom_call @SPMDFullToShardShape(%x)
                 : (tensor<4xf32>) -> tensor<4xf32>""",
            "",
            "got SPMDFullToShardShape, a part",
        ),
        (
            """%i = stablehlo.partition_id : tensor<ui32>
               %f = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
               %0 = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>""",
            "mhlo.num_partitions = 2 : i32",
            "got stablehlo.partition_id among 2 devices",
        ),
        (
            "%0 = stablehlo.negate %x : tensor<4xf32>",
            "mhlo.num_replicas = 2 : i32",
            "got mhlo.num_replicas = 2; lower it without replicas",
        ),
    ],
)
def test_parts_of_several_devices_are_refused_by_name(
    body: str, attributes: str, message: str, tmp_path: Path
) -> None:
    text = f"""module attributes {{{attributes}}} {{
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        {body}
        return %0 : tensor<4xf32> }} }}"""
    with pytest.raises(ProgramError, match=f"expected a program for one device, {message}"):
        load_text(tmp_path, text)


def test_commands_say_that_shardings_are_ignored_and_write_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "divided.mlir"
    as_text(path)
    assert run_command(["kernels", str(path)]) == 0
    assert "note: 4 shardings are ignored: hlotune computes this" in capsys.readouterr().out
    Database(tmp_path / "a.db").close()
    program: Program = load(path)
    save_artifact(apply(program, database=tmp_path / "a.db"), tmp_path / "divided.hlotune")
    tuned = load_artifact(tmp_path / "divided.hlotune")
    np.testing.assert_allclose(tuned(*ARGUMENTS)[0], layer(*ARGUMENTS), rtol=1e-5, atol=1e-6)

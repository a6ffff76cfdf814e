"""What moves between releases of jaxlib: artifacts that others read, and names that are missing."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import export

from hlotune.hlo.canonical import canonical
from hlotune.hlo.frontends.program import load
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir import versions
from hlotune.schedules.errors import ProgramError
from tests.support.make_artifact_fixture import ARTIFACT, TEXT
from tests.support.tree import ROOT

pytestmark = pytest.mark.smoke

OLDEST = (1, 17, 0)
"""StableHLO's version in jaxlib 0.10.2."""
ADD = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
COMPOSITE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.composite "any.name" %x {decomposition = @f} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
"""
"""StableHLO 0.9.0 has no composites."""


def version_of(artifact: bytes) -> tuple[int, ...]:
    found = re.match(rb"ML\xefR.StableHLO_v(\d+)\.(\d+)\.(\d+)", artifact, re.DOTALL)
    assert found is not None
    return tuple(map(int, found.groups()))


def test_an_artifact_of_jaxlib_0_12_is_read_by_every_release() -> None:
    assert canonical(load(ARTIFACT).graph) == TEXT.read_text(encoding="utf-8")


def test_an_artifact_of_an_old_bytecode_is_known_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "portable_version", lambda requirement: "0.9.0")
    old = mlir.parse(ADD).artifact()
    assert old[4:5] == b"\x01"  # the version of the bytecode, which is 13 now
    assert canonical(mlir.graph(mlir.parse(old))) == canonical(mlir.graph(mlir.parse(ADD)))


def test_an_artifact_is_written_so_that_the_oldest_release_reads_it() -> None:
    assert version_of(mlir.parse(ADD).artifact()) <= OLDEST
    assert version_of(mlir.exportable(mlir.parse(ADD))) <= OLDEST


def test_what_is_younger_than_that_is_written_for_this_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the releases of twelve weeks ago did not know composites yet."""
    this = versions.stablehlo.get_current_version()
    age = versions.stablehlo.StablehloCompatibilityRequirement
    known = {age.WEEK_12: "0.9.0", age.NONE: this}
    monkeypatch.setattr(versions, "portable_version", known.__getitem__)
    assert version_of(mlir.parse(ADD).artifact()) == (0, 9, 0)
    assert version_of(mlir.parse(COMPOSITE).artifact()) == tuple(map(int, this.split(".")))


def test_an_export_with_an_operation_of_a_later_version_is_one_line(tmp_path: Path) -> None:
    shape = jax.ShapeDtypeStruct((4, 4), "float32")  # type: ignore[no-untyped-call]
    exported = export.export(jax.jit(jnp.tanh), platforms=("cpu",))(shape)
    artifact = exported.mlir_module_serialized
    later, count = re.subn(rb"tanh_v\d", b"tanh_v9", artifact)
    path = tmp_path / "later.jax_export"
    path.write_bytes(b"\0" * 8 + len(later).to_bytes(4, "little") + later + b"\0" * 8)
    version = ".".join(map(str, version_of(artifact)))
    message = (
        r"MLIR refuses: .*Failed to deserialize.*; check that the file is StableHLO of a version "
        rf"from 0\.9\.0 to [\d.]+: it says {re.escape(version)}; export it again by"
    )
    assert count == 1
    with pytest.raises(ProgramError, match=message) as refused:
        load(path)
    assert "\n" not in str(refused.value)


LACKING = """
import sys
from jaxlib import _hlo
del _hlo.hlo_module_from_text  # jax is loaded without it
from hlotune.cli.main import run_command
sys.exit(run_command(["kernels", "examples/mlp.py:model"]))
"""


def test_a_jaxlib_that_lacks_a_name_is_one_line_that_says_which_versions_have_it() -> None:
    done = subprocess.run([sys.executable, "-c", LACKING], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("tune: ")]
    assert line.startswith(
        "tune: expected jax and jaxlib of a version from 0.10.2 to 0.12, got jaxlib "
    )
    assert line.endswith("install one of these with `pip install 'jax<0.13'`")
    assert "Traceback" not in done.stderr

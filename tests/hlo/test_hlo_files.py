"""HLO files of XLA are programs like any other."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import _hlo  # type: ignore[attr-defined]

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.mlir.module import bytecode_of
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 3)))


def layer(a: Any, b: Any) -> Any:
    return jnp.tanh(a @ b) + 1


def hlo_text() -> bytes:
    return jax.jit(layer).lower(A, B).as_text("hlo").encode()


def hlo_proto() -> bytes:
    module = _hlo.hlo_module_from_text(hlo_text().decode())
    return bytes(module.as_serialized_hlo_module_proto())


def wrapped(data: bytes) -> bytes:
    """A message whose first field is this one, with fields of other kinds behind it."""
    length, size = len(data), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return b"\x0a" + size + bytes([length]) + data + b"\x1a\x01x" + b"\x20\x05" + b"\x2d1234"


def computation(snapshot: bytes) -> bytes:
    """What XLA.jl sent: a configuration with a number, then the snapshot as the second field."""
    return b"\x0a\x02\x08\x01" + b"\x12" + wrapped(snapshot)[1:]


@pytest.mark.parametrize(
    "name", ["layer.hlo", "dump.txt", "a.pb", "a.hlo.pb", "snapshot.pb", "xrt.pb"]
)
def test_a_file_of_hlo_is_the_program_that_it_was(name: str, tmp_path: Path) -> None:
    data = {
        "layer.hlo": hlo_text(),
        "dump.txt": hlo_text(),
        "a.pb": hlo_proto(),
        "a.hlo.pb": wrapped(hlo_proto()),
        "snapshot.pb": wrapped(wrapped(hlo_proto())),
        "xrt.pb": computation(wrapped(wrapped(hlo_proto()))),
    }
    (tmp_path / name).write_bytes(data[name])
    program = load(tmp_path / name)
    (got,) = jax.tree.leaves(jitted(program)(A, B))
    np.testing.assert_allclose(got, layer(A, B), rtol=1e-6)
    assert {s.kernel.key for s in sites(program)} == {
        s.kernel.key for s in sites(load(layer, A, B))
    }


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.hlo", b"HloModule a\nENTRY e { x = f32[2] sorcery() }", "expected HLO text, .*sorcery"),
        ("a.pb", b"\x00\xff", "expected a serialized HloModuleProto"),
        ("a.pb", b"", "expected a program in .*a.pb, got an empty file; write it again"),
        ("a.hlo", b"\n", "expected a program in .*a.hlo, got an empty file"),
        ("a.mlirbc", b"\0" * 64, "expected a program in .*a.mlirbc, got an empty file"),
        ("a.keras", b"", "got .*a.keras, a Keras model; .*does not read it: export the model to"),
        ("A.PT2", b"", "expected a program in .*A.PT2, got an empty file; write it again"),
        ("A.PT", b"", "got .*A.PT, a PyTorch model; .* pickled: .*save in a file .pt2"),
        ("a.safetensors", b"", "weights in safetensors; name the program that uses these values"),
        ("saved_model.pb", b"", "got .*saved_model.pb, a SavedModel of TensorFlow; hlotune does"),
        (
            "a.txt",
            b"a letter",
            r"expected a StableHLO module \(text, bytecode or portable artifact\) or HLO text that "
            "begins with HloModule or with a computation, got a text that begins 'a letter'",
        ),
    ],
)
def test_a_file_of_something_else_is_refused(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ProgramError, match=message):
        load(tmp_path / name)


ADDING = "HloModule a\nENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }\n"
COMMENTS = "\n// dumped by XLA\n/* before\n optimizations */ "


@pytest.mark.parametrize("name", ["a.txt", "a.TXT", "A.HLO", "a.hlo", "a.dump"])
def test_hlo_text_is_told_by_what_it_begins_with(name: str, tmp_path: Path) -> None:
    for text in (ADDING, COMMENTS + ADDING):
        (tmp_path / name).write_text(text)
        assert [op.name for op in load(tmp_path / name).graph.ops] == ["stablehlo.add"]


def test_stablehlo_is_read_whatever_the_case_of_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "A.MLIR"
    path.write_text("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
                    "  return %x : tensor<2xf32>\n}")  # fmt: skip
    assert load(path).graph.ops == ()


def test_stablehlo_is_read_from_a_file_whose_suffix_says_hlo(tmp_path: Path) -> None:
    lowered = jax.jit(layer).lower(A, B)
    path = tmp_path / "a.hlo"
    for data in (
        lowered.as_text().encode(),
        lowered.as_text(debug_info=True).encode(),
        bytecode_of(lowered.compiler_ir("stablehlo")),
    ):
        path.write_bytes(data)
        np.testing.assert_allclose(jitted(load(path))(A, B)[0], layer(A, B), rtol=1e-6)


@pytest.mark.parametrize("name", ["a.txt", "A.MLIR", "a.Pb"])
def test_a_program_file_that_is_not_there_is_missed(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=f"expected a program file .*{name}, found none"):
        load(tmp_path / name)


def test_a_folder_is_refused_with_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="a folder; name the file in it"):
        load(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    with pytest.raises(ProgramError, match=r"a SavedModel of TensorFlow; .*export the model to"):
        load(tmp_path)


def step(x: Any, w: Any, b: Any) -> Any:
    """A step on an image with channels first: XLA puts fusions, copies and casts of layouts around
    it.
    """
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]
    z = jax.nn.relu(y).reshape(len(x), -1)
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c.T), c.sum()), z @ z.T, None, length=3)


@pytest.mark.parametrize("form", ["text", "proto"])
def test_a_program_that_xla_has_optimized_is_one_without_its_fusions(
    form: str, tmp_path: Path
) -> None:
    x, w, b = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 8), (4, 3, 3, 3), 4))
    text = jax.jit(step).lower(x, w, b).compile().as_text() or ""
    assert "fusion(" in text and " copy(" in text
    proto = bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    path = tmp_path / ("a.hlo" if form == "text" else "a.hlo.pb")
    path.write_bytes(text.encode() if form == "text" else proto)
    program = load(path)
    assert {op.name.partition(".")[0] for op in program.graph.ops} == {"stablehlo"}
    got = jax.tree.leaves(jitted(program)(x, w, b))
    for a, e in zip(got, jax.tree.leaves(step(x, w, b)), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5)
    assert any("conv" in site.label for site in sites(program))


CAST = """HloModule a, entry_computation_layout={(f32[2,3]{0,1})->f32[6]{0}}
ENTRY e {
  x = f32[2,3]{0,1} parameter(0)
  ROOT y = f32[6]{0} bitcast(x)
}
"""
WIDER = "HloModule a\nENTRY e { x = f32[4]{0} parameter(0)  ROOT y = u16[8]{0} bitcast(x) }\n"


def test_a_cast_reads_bytes_in_the_order_of_the_layout(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(CAST)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = jax.tree.leaves(jitted(load(tmp_path / "a.hlo"))(x))
    np.testing.assert_array_equal(got, x.T.reshape(-1))


def test_a_cast_to_narrower_elements_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(WIDER)
    with pytest.raises(ProgramError, match=r"got mhlo\.bitcast; give the program as it is before"):
        load(tmp_path / "a.hlo")


def test_a_program_that_calls_python_is_refused() -> None:
    def noted(x: Any) -> Any:
        jax.debug.print("{}", x[0])
        return x @ x.T

    with pytest.raises(ProgramError, match=r"calls back into it .*leave out callbacks"):
        load(noted, A)

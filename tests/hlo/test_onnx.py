"""ONNX models are programs like any other."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError
from tests.support.onnx_models import (
    cnn,
    model,
    node,
    of_one,
    saved,
    tensor,
    transformer,
    weights,
)

pytestmark = pytest.mark.smoke
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 3, 16, 16)).astype(np.float32)


def expected(made: Any, **inputs: Any) -> Any:
    return ReferenceEvaluator(made).run(None, inputs)[0]


def test_a_network_of_convolutions_gives_the_numbers_of_onnx(tmp_path: Path) -> None:
    path = saved(cnn(), tmp_path / "cnn.onnx")
    program = load(path, dims={"batch": 2})
    assert (program.names, program.name) == (("x",), "cnn")
    (by_name,), (by_position,) = jitted(program)(x=IMAGES), jitted(program)(IMAGES)
    np.testing.assert_allclose(by_name, expected(cnn(), x=IMAGES), rtol=1e-5)
    np.testing.assert_array_equal(by_name, by_position)


def test_kernels_of_a_network_hold_its_weights_as_constants(tmp_path: Path) -> None:
    program = load(saved(cnn(1), tmp_path / "cnn.onnx"))
    anchors = [program.graph.ops[s.root].name for s in sites(program)]
    assert anchors.count("stablehlo.convolution") >= 2
    assert "stablehlo.dot_general" in anchors
    assert [len(t.shape) for t in program.graph.argument_types] == [4]
    convolved = [s for s in sites(program) if "stablehlo.convolution" in s.kernel.text]
    assert convolved
    assert all("hlotune.constant" in s.kernel.text for s in convolved)


def test_a_transformer_gives_the_numbers_of_onnx(tmp_path: Path) -> None:
    made = transformer()
    program = load(saved(made, tmp_path / "t.onnx"), dims={"batch": 2, "sequence": 6})
    assert program.names == ("tokens", "mask")
    tokens = RNG.integers(0, 50, (2, 6))
    mask = np.tril(np.ones((6, 6), bool))
    (got,) = jitted(program)(tokens=tokens, mask=mask)
    wanted = expected(made, tokens=tokens, mask=mask)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_symbolic_dimension_wants_a_size(tmp_path: Path) -> None:
    path = saved(transformer(), tmp_path / "t.onnx")
    with pytest.raises(
        ProgramError,
        match=r"none for batch, sequence \(tokens is batch x sequence, mask .*--dim batch=8 --dim",
    ):
        load(path)
    with pytest.raises(ProgramError, match=r"none for sequence \("):
        load(path, dims={"batch": 2})
    with pytest.raises(ProgramError, match="which are batch, sequence, got time; leave that out"):
        load(path, dims={"batch": 2, "sequence": 6, "time": 3})


def test_a_dimension_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    made = of_one("Relu", [1, 3])
    made.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    path = saved(made, tmp_path / "a.onnx")
    with pytest.raises(ProgramError, match=r"none for x0.0 .*--dim x0.0=8"):
        load(path)
    assert load(path, dims={"x0.0": 5}).graph.argument_types[0].shape == (5, 3)


def test_sizes_come_with_symbolic_dimensions_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.hlo"
    path.write_text("HloModule a\nENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }\n")
    with pytest.raises(
        ProgramError, match=r"no sizes of dimensions with .*a.hlo.* got batch; leave"
    ):
        load(path, dims={"batch": 2})
    with pytest.raises(
        ProgramError, match=r"symbolic dimensions alone, got batch with .*sin.*; leave"
    ):
        load(np.sin, IMAGES, dims={"batch": 2})


def with_external_data(folder: Path) -> Path:
    """A product by weights that lie in a file of their own."""
    made = model(
        [node("MatMul", "x w", "y")], [tensor("x", [4, 64])], [tensor("y", [4, 64])],
        {"w": weights(64, 64)},
    )  # fmt: skip
    path = folder / "outside.onnx"
    onnx.save(made, path, save_as_external_data=True, location="values.bin", size_threshold=0)
    return path


def test_weights_may_lie_in_another_file_of_the_folder(tmp_path: Path) -> None:
    x = RNG.standard_normal((4, 64)).astype(np.float32)
    (got,) = jitted(load(with_external_data(tmp_path)))(x)
    np.testing.assert_allclose(got, x @ weights(64, 64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_weights_outside_of_the_folder_are_refused(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_external_data(folder)
    outside = tmp_path / "values.bin"
    (folder / "values.bin").rename(outside)
    if how == "link":
        (folder / "values.bin").symlink_to(outside)
    else:
        made = onnx.load(path, load_external_data=False)
        named = made.graph.initializer[0].external_data[0]
        assert named.key == "location"
        named.value = "../values.bin" if how == "above" else str(outside)
        saved(made, path)
    with pytest.raises(ProgramError, match="external data of tensor w in the folder of the model"):
        load(path)


def test_weights_whose_file_is_missing_or_short_are_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "values.bin").write_bytes(bytes(100))
    with pytest.raises(ProgramError, match=r"values of tensor w that fit .* a file of 100 bytes"):
        load(path)
    (tmp_path / "values.bin").unlink()
    with pytest.raises(ProgramError, match=r"expected a file 'values.bin' in .*; put it next to"):
        load(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no model", "expected an ONNX model in .*, got bytes that are no ModelProto"),
        (b"", "expected a program in .*, got an empty file"),
        (b"\x08\x07", "got a ModelProto without a graph or opsets"),
    ],
)
def test_a_damaged_file_is_one_error(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(data)
    with pytest.raises(ProgramError, match=message):
        load(tmp_path / "a.onnx")


def test_a_file_that_is_cut_off_is_one_error(tmp_path: Path) -> None:
    data = cnn(1).SerializeToString()
    for size in (20, len(data) // 3, len(data) // 2, len(data) - 3):
        (tmp_path / "a.onnx").write_bytes(data[:size])
        with pytest.raises(ProgramError, match=r"^expected "):
            load(tmp_path / "a.onnx")


def test_a_tensor_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    made = model(
        [node("Add", "x w", "y")], [tensor("x", [2])], [tensor("y", [2])], {"w": weights(2)}
    )
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend([1 << 40, 1 << 20])
    with pytest.raises(ProgramError, match="values of tensor w that fit its type and shape"):
        load(saved(made, tmp_path / "a.onnx"))


def test_a_value_too_large_for_the_machine_is_refused(tmp_path: Path) -> None:
    made = model(
        [node("ConstantOfShape", "sizes", "c"), node("Concat", "c c", "d", axis=0),
         node("NonZero", "d", "z"), node("Cast", "z", "y", to=TensorProto.FLOAT)],
        [tensor("x", [2])], [tensor("y", None)], {"sizes": np.array([1 << 20, 1 << 20])},
    )  # fmt: skip
    with pytest.raises(ProgramError, match=r"NonZero|memory"):
        load(saved(made, tmp_path / "a.onnx"))


def nested(depth: int) -> Any:
    """A model whose function calls itself."""
    call = helper.make_node("again", ["x"], ["y"], domain="own")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "again", ["x"], ["y"], [call], imports)
    graph = helper.make_graph([call], "g", [tensor("x", [2])], [tensor("y", [2])])
    return helper.make_model(graph, functions=[function], opset_imports=imports)


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="a function of the model calls itself"):
        load(saved(nested(1), tmp_path / "a.onnx"))


def test_functions_of_a_model_are_run_by_their_bodies(tmp_path: Path) -> None:
    scale = helper.make_node("Constant", [], ["s"])
    reference = scale.attribute.add()
    reference.name, reference.ref_attr_name = "value_float", "scale"
    reference.type = onnx.AttributeProto.FLOAT
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "scaled", ["x"], ["y"], [scale, node("Mul", "x s", "y")], imports, ["scale"]
    )
    call = helper.make_node("scaled", ["x"], ["y"], domain="own", scale=3.0)
    graph = helper.make_graph([call], "g", [tensor("x", [2])], [tensor("y", [2])])
    made = helper.make_model(graph, functions=[function], opset_imports=imports)
    (got,) = jitted(load(saved(made, tmp_path / "a.onnx")))(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(got, [3, 6])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (of_one("NonZero", [4]), r"got NonZero whose result has a shape that depends on values"),
        (of_one("RandomNormalLike", [4]), "got RandomNormalLike which draws random numbers"),
        (of_one("Reshape", [4], opset=21), "damaged"),
    ],
    ids=["values", "random", "inputs"],
)
def test_an_operator_that_is_not_computed_is_named(made: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=message):
        load(saved(made, tmp_path / "a.onnx"))


def test_a_shape_that_is_an_argument_is_refused(tmp_path: Path) -> None:
    made = model(
        [helper.make_node("Reshape", ["x", "sizes"], ["y"], name="flattened")],
        [tensor("x", [4]), tensor("sizes", [2], TensorProto.INT64)], [tensor("y", [2, 2])],
    )  # fmt: skip
    with pytest.raises(
        ProgramError, match=r"Reshape \(node flattened\) whose shape is computed from arguments"
    ):
        load(saved(made, tmp_path / "a.onnx"))


def test_operators_of_a_runtime_of_its_own_are_refused(tmp_path: Path) -> None:
    call = helper.make_node("Fancy", ["x"], ["y"], domain="org.example")
    graph = helper.make_graph([call], "g", [tensor("x", [2])], [tensor("y", [2])])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("org.example", 1)]
    made = helper.make_model(graph, opset_imports=imports)
    with pytest.raises(ProgramError, match=r"got org.example.Fancy of opset 1, which it has no"):
        load(saved(made, tmp_path / "a.onnx"))


@pytest.mark.parametrize("opset", [5, 99])
def test_an_opset_that_is_not_known_is_refused(opset: int, tmp_path: Path) -> None:
    made = of_one("Relu", [4])
    made.opset_import[0].version = opset
    with pytest.raises(ProgramError, match=rf"of opsets 6 to .*, got opset {opset} in"):
        load(saved(made, tmp_path / "a.onnx"))


def test_texts_are_refused(tmp_path: Path) -> None:
    made = of_one("Identity", [4])
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ProgramError, match="to be tensors of numbers, got texts as x0"):
        load(saved(made, tmp_path / "a.onnx"))


def test_reading_a_model_imports_onnx_in_another_process_alone(tmp_path: Path) -> None:
    path = saved(of_one("Relu", [4]), tmp_path / "a.onnx")
    script = (
        "import sys, hlotune\n"
        f"assert hlotune.load({str(path)!r}).names == ('x0',)\n"
        "assert 'onnx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_package_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hlotune.hlo.frontends.normal_form import parsed_file

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ProgramError, match=r"the package onnx, .*: pip install hlotune\[onnx\]"):
        parsed_file(b"\x08", str(tmp_path / "a.onnx"), {}, lambda seconds, size: None)


def test_elements_are_gathered_from_a_longer_weight_while_the_model_is_read(tmp_path: Path) -> None:
    nodes = [node("GatherElements", "w i", "g", axis=1), node("Add", "x g", "y")]
    stored = {"w": np.arange(8, dtype=np.float32)[None], "i": np.array([[1, -1, 0]])}
    made = model(nodes, [tensor("x", [1, 3])], [tensor("y", [1, 3])], stored)
    (got,) = jitted(load(saved(made, tmp_path / "a.onnx")))(np.zeros((1, 3), np.float32))
    np.testing.assert_array_equal(got, [[1, 7, 0]])

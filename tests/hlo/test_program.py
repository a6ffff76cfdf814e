"""Programs come in as JAX functions and as files, and in normal form."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, argument, load
from hlotune.hlo.graph import Graph, Literal, TensorType
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.large_pages import ALIGNMENT

pytestmark = pytest.mark.smoke

X = argument("f32[4,8]")
MATMUL = """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %y = stablehlo.dot %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}
"""


def names(program: Program) -> list[str]:
    return [op.name for op in program.graph.ops]


def load_text(folder: Path, text: str) -> Program:
    path = folder / "program.mlir"
    path.write_text(text)
    return load(path)


def test_the_only_public_function_of_a_file_is_its_entry(tmp_path: Path) -> None:
    text = """func.func private @half(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = stablehlo.tanh %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }
    func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = func.call @half(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    assert [op.name for op in load_text(tmp_path, text).graph.ops] == ["stablehlo.tanh"]


def test_what_jax_export_serializes_is_read(tmp_path: Path) -> None:
    """A FlatBuffer; writing one takes a package that is not installed, so it is made by hand."""
    module = export.export(jax.jit(special))(X).mlir_module_serialized
    path = tmp_path / "special.exported"
    path.write_bytes(bytes(16) + len(module).to_bytes(4, "little") + module + b"names")
    (tmp_path / "special.stablehlo").write_bytes(module)
    assert load(path).graph == load(tmp_path / "special.stablehlo").graph


def test_of_an_export_with_its_derivative_the_function_itself_is_read(tmp_path: Path) -> None:
    """The derivative lies ahead of the function, as a FlatBuffer is written from its end."""
    made = export.export(jax.jit(special))(X)
    path = tmp_path / "special.exported"
    path.write_bytes(
        b"".join(
            bytes(16) + len(module).to_bytes(4, "little") + module + b"names"
            for module in (made.vjp().mlir_module_serialized, made.mlir_module_serialized)
        )
    )
    (tmp_path / "special.stablehlo").write_bytes(made.mlir_module_serialized)
    assert load(path).graph == load(tmp_path / "special.stablehlo").graph


def test_a_function_keeps_its_pytrees_and_unused_arguments() -> None:
    def scale(
        params: dict[str, jax.Array], unused: jax.Array, x: jax.Array
    ) -> dict[str, jax.Array]:
        return {"y": x * params["w"]}

    program = load(scale, {"w": X, "v": X}, X, X)
    assert len(program.graph.arguments) == 4
    assert program.in_tree == jax.tree.structure((({"w": 0, "v": 0}, 0, 0), {}))
    assert program.out_tree == jax.tree.structure({"y": 0})
    assert program.name.endswith("scale")
    assert program.example_args is not None


def test_calls_are_inlined_also_inside_loops() -> None:
    def f(x: jax.Array) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: jax.nn.relu(jnp.cumsum(y)), x)

    program = load(f, argument("f32[8]"))
    assert "func.call" not in mlir.parse(program.bytecode).text()
    assert list(mlir.parse(program.bytecode).functions()) == ["main"]


def special(x: jax.Array) -> object:
    return jax.scipy.special.erf(x), lax.erfc(x), lax.top_k(x, 2), jnp.square(x), jnp.sinh(x)


def test_operations_with_a_meaning_of_their_own_are_kept_and_others_decomposed() -> None:
    kept = {name for name in names(load(special, X)) if name.startswith("chlo")}
    assert kept == {"chlo.erf", "chlo.erfc", "chlo.top_k"}


def test_composites_that_export_writes_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "special.mlirbc"
    path.write_bytes(export.export(jax.jit(special))(X).mlir_module_serialized)
    program = load(path)
    assert {"chlo.erf", "chlo.top_k"} <= set(names(program))
    assert "stablehlo.composite" not in names(program)


def test_text_bytecode_and_artifact_are_the_same_program(tmp_path: Path) -> None:
    parsed = mlir.parse(MATMUL)
    keys = set()
    for i, data in enumerate((MATMUL.encode(), parsed.bytecode(), parsed.artifact())):
        path = tmp_path / f"{i}.mlirbc"
        path.write_bytes(data)
        keys.add(load(path).key)
    assert len(keys) == 1


def test_a_function_can_be_loaded_twice_and_jitted_in_between() -> None:
    """JAX keeps what it lowered, and a program is made of a copy of that."""
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    function = jax.jit(lambda x: jax.nn.gelu(x @ weights), donate_argnums=0)
    x = np.ones((2, 8), np.float32)
    first, wanted, second = load(function, x), function(jnp.ones_like(x)), load(function, x)
    assert first.key == second.key
    assert first.donated == second.donated == (0,)
    np.testing.assert_allclose(jitted(second)(jnp.ones_like(x)), wanted, rtol=1e-6)


def test_large_constants_lie_where_they_are_packed_from_without_a_copy() -> None:
    weights = np.random.default_rng(0).normal(size=(256, 128)).astype(np.float32)
    program = load(lambda x: x @ weights, argument("f32[2,256]"))
    literals = [op["value"] for op in program.graph.ops if op.name == "stablehlo.constant"]
    [literal] = [v for v in literals if isinstance(v, Literal) and not v.splat]
    assert literal.array().ctypes.data % ALIGNMENT == 0
    assert not literal.array().flags.writeable
    np.testing.assert_array_equal(literal.array(), weights)


def test_a_legacy_dot_is_a_dot_general(tmp_path: Path) -> None:
    [op] = load_text(tmp_path, MATMUL).graph.ops
    assert op.name == "stablehlo.dot_general"
    assert op["lhs_contracting_dimensions"] == (1,)
    assert op["rhs_contracting_dimensions"] == (0,)
    assert op["lhs_batching_dimensions"] == ()


def test_large_constants_stay_and_their_values_are_part_of_the_key() -> None:
    def program(seed: int) -> Program:
        weights = np.random.default_rng(seed).normal(size=(300, 8)).astype(np.float32)
        return load(lambda x: x @ weights, argument("f32[2,300]"))

    literals = [op["value"] for op in program(0).graph.ops if op.name == "stablehlo.constant"]
    expected = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    assert any(isinstance(v, Literal) and np.array_equal(v.array(), expected) for v in literals)
    assert program(0).key == program(0).key != program(1).key


@pytest.mark.parametrize(
    ("numbers", "dtype"), [(5, "bf16"), (300, "bf16"), (5, "f16"), (300, "i8"), (70, "i1")]
)
def test_constants_of_every_type_are_read_exactly(numbers: int, dtype: str) -> None:
    kind = TensorType((numbers,), dtype)
    values = [i % 2 == 0 if dtype == "i1" else i % 100 for i in range(numbers)]
    texts = [str(v).lower() if dtype[0] == "i" else f"{v}.5" for v in values]
    text = f"""func.func @main() -> {kind} {{
      %c = stablehlo.constant dense<[{", ".join(texts)}]> : {kind}
      return %c : {kind} }}"""
    literal = mlir.graph(mlir.parse(text)).ops[0]["value"]
    assert isinstance(literal, Literal)
    extra = 0 if dtype[0] == "i" else 0.5
    assert literal.array().astype(np.float64).tolist() == [v + extra for v in values]


def test_defaults_of_a_convolution_are_filled_in() -> None:
    text = """func.func @main(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x4xf32>)
        -> tensor<1x6x6x4xf32> {
      %y = stablehlo.convolution(%x, %w)
        dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x6x6x4xf32>
      return %y : tensor<1x6x6x4xf32> }"""
    op = mlir.graph(mlir.parse(text)).ops[0]
    assert op["window_strides"] == op["lhs_dilation"] == op["rhs_dilation"] == (1, 1)
    assert op["padding"] == ((0, 0), (0, 0))
    assert op["window_reversal"] == (False, False)
    assert op["kernel_spatial_dimensions"] == (0, 1)


def test_a_region_names_what_it_captures() -> None:
    program = load(lambda p, x: lax.cond(p, lambda: x * 2, lambda: x), True, X)
    case = next(op for op in program.graph.ops if op.name == "stablehlo.case")
    captured = [outer for region in case.regions for _, outer in region.captures]
    assert program.graph.arguments[1] in captured


def test_marks_of_constants_are_read(tmp_path: Path) -> None:
    marked = MATMUL.replace("%w: tensor<8x2xf32>", "%w: tensor<8x2xf32> {hlotune.constant}")
    graph: Graph = load_text(tmp_path, marked).graph
    assert graph.constants == {graph.arguments[1]}


def test_a_file_in_a_package_imports_from_its_package(tmp_path: Path) -> None:
    inner = tmp_path / "toy_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner.parent / "sizes_of_toys.py").write_text("ROWS = 3\n")
    file = inner / "model.py"
    file.write_text(
        "import jax.numpy as jnp\n"
        "from toy_package.sizes_of_toys import ROWS\n"
        "def toy():\n"
        "    return jnp.tanh, (jnp.ones((ROWS, 2)),)\n"
    )
    before = list(sys.path)
    assert load(f"{file}:toy").graph.argument_types == (TensorType((3, 2), "f32"),)
    assert sys.path == before


def test_a_path_and_a_name_call_a_factory(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("ROWS = 3\n")
    file = tmp_path / "model.py"
    file.write_text(
        "import jax.numpy as jnp\nfrom sizes import ROWS\n"
        "def model():\n    return jnp.sin, (jnp.ones((ROWS, 2)),)\n"
    )
    program = load(f"{file}:model")
    assert program.graph.argument_types == (TensorType((3, 2), "f32"),)
    assert program.source == f"{file}:model"
    assert program.name == "model"


def test_a_module_of_the_current_folder_is_found_where_no_other_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command `tune` begins, whose path has no current folder."""
    (tmp_path / "of_this_folder.py").write_text("def twice(x): return x * 2\n")
    (tmp_path / "json.py").write_text("raise ValueError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", before := [p for p in sys.path if p])
    assert load("of_this_folder:twice", X).name == "twice"
    with pytest.raises(ProgramError, match="got none; it has"):
        load("json:no_such", X)
    assert sys.path == before


def test_a_factory_and_its_function_import_neighbours_when_they_run(tmp_path: Path) -> None:
    (tmp_path / "late_rows.py").write_text("ROWS = 3\n")
    (tmp_path / "late_scale.py").write_text("SCALE = 2.0\n")
    file = tmp_path / "model.py"
    file.write_text(
        "import jax.numpy as jnp\n"
        "def double(x):\n    from late_scale import SCALE\n    return x * SCALE\n"
        "def model():\n    from late_rows import ROWS\n    return double, (jnp.ones((ROWS, 2)),)\n"
    )
    before = list(sys.path)
    assert load(f"{file}:model").graph.argument_types == (TensorType((3, 2), "f32"),)
    assert sys.path == before


def test_a_name_and_argument_types_are_a_function() -> None:
    program = load("jax.numpy:dot", argument_types=["f32[4,8]", "bf16[8]"])
    assert program.graph.argument_types == (TensorType((4, 8), "f32"), TensorType((8,), "bf16"))


def test_argument_reads_scalars() -> None:
    assert argument("i32[]").shape == ()


@pytest.mark.parametrize("text", ["f32", "f33[2]", "f32[2", "f33[?]"])
def test_argument_rejects_what_is_no_type(text: str) -> None:
    with pytest.raises(ProgramError, match="expected an argument type like f32"):
        argument(text)


@pytest.mark.parametrize("size", ["?", "a", "-1", "2.5"])
def test_argument_rejects_a_size_that_is_no_number(size: str) -> None:
    with pytest.raises(ProgramError, match=r"expected whole numbers as sizes.*give each size") as e:
        argument(f"f32[8,{size}]")
    assert f"got {size!r} in" in str(e.value)


def test_programs_run_on_the_cpu_where_jax_prefers_another_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    run = jitted(load(lambda x, y: x + y, X, X))
    result = run(*[np.ones((4, 8), np.float32)] * 2)
    assert result.device == jax.devices("cpu")[0]


def test_a_program_prints_its_name_and_source_alone() -> None:
    assert len(repr(load(lambda x: x + 1, np.ones(4, np.float32)))) < 200


def test_a_file_may_hold_dataclasses_with_late_annotations(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import numpy as np\n"
        "@dataclass\nclass Sizes:\n    rows: int = 3\n"
        "def model():\n"
        "    return (lambda x: x + 1), (np.ones(Sizes().rows, np.float32),)\n"
    )
    assert load(f"{file}:model").graph.argument_types[0].shape == (3,)


def test_an_object_without_a_hash_is_a_function_as_any_other() -> None:
    @dataclass
    class Layer:
        weights: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return x @ self.weights

    layer = Layer(jnp.ones((8, 2)))
    with pytest.raises(TypeError):
        hash(layer)
    assert load(layer, X).names == ("x",)

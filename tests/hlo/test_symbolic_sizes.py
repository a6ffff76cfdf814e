"""Sizes of symbolic dimensions: expressions of names, and StableHLO that JAX exports with them."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.frontends.symbolic_sizes import Argument, combinations, static_shapes
from hlotune.hlo.frontends.variants import load_variants
from hlotune.schedules.errors import ProgramError

ARGUMENTS = [Argument("x", ("b", "2*b + t", 8)), Argument("y", ("max(b, t)", 3)), Argument("z", ())]


def test_expressions_have_the_sizes_of_their_names() -> None:
    assert static_shapes(ARGUMENTS, {"b": 2, "t": 5}, "f") == [(2, 9, 8), (5, 3), ()]
    assert static_shapes(ARGUMENTS, {"x.0": 2, "t": 5}, "f") == [(2, 9, 8), (5, 3), ()]
    named = [Argument("x", ("batch size", "b // 2"))]
    assert static_shapes(named, {"batch size": 3, "b": 5}, "f") == [(3, 2)]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "none for b, t (x is b x 2*b + t x 8, y is max(b, t) x 3); give them on the command "
             "line as in --dim b=8 --dim t=8"),
        ({"b": 2, "t": 5, "c": 1}, "which are b, t, got c; leave that out"),
        ({"b": 2, "x.0": 3, "t": 1}, "expected one size of b in f, got 3 and 2; give it once"),
        ({"b": 2, "t": -9}, "sizes of at least 0 in f, got another for 2*b + t in x is"),
    ],
)  # fmt: skip
def test_sizes_that_are_missing_or_wrong_are_one_error(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(said)):
        static_shapes(ARGUMENTS, sizes, "f")


def test_code_in_a_size_is_a_name_and_is_never_run() -> None:
    text = "__import__('os').abort()"
    with pytest.raises(ProgramError, match="got none for __import__"):
        static_shapes([Argument("x", (text,))], {}, "f")
    assert static_shapes([Argument("x", (text,))], {text: 4}, "f") == [(4,)]
    with pytest.raises(ProgramError, match="got another for 8 // b"):
        static_shapes([Argument("x", ("8 // b",))], {"b": 0}, "f")


def test_combinations_of_sizes_are_all_of_them() -> None:
    assert combinations({"b": (1, 2), "t": (3, 4)}) == [
        {"b": 1, "t": 3}, {"b": 1, "t": 4}, {"b": 2, "t": 3}, {"b": 2, "t": 4},
    ]  # fmt: skip
    with pytest.raises(ProgramError, match="different sizes of the dimension b, got "):
        combinations({"b": (1, 1)})
    with pytest.raises(ProgramError, match="at most 64 combinations of sizes, got 100; give"):
        combinations({"b": range(10), "t": range(10)})


@pytest.mark.parametrize("sizes", [8, "8", [1, "8"], [[1]], None])
def test_sizes_that_are_no_list_of_numbers_are_one_error(sizes: Any) -> None:
    with pytest.raises(ProgramError, match=r"sizes of the dimension b as whole numbers in a list"):
        load_variants("program.mlir", dims={"b": sizes})


def function(x: Any, y: Any) -> Any:
    return jax.nn.relu(x @ jnp.ones((8, 4))) + y.sum(0) * x.shape[0]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A StableHLO file of symbolic shapes, as jax.export makes it."""
    b, t = export.symbolic_shape("b, t")
    symbolic: Any = jax.ShapeDtypeStruct
    made = export.export(jax.jit(function), platforms=["cpu"])(
        symbolic((b, t, 8), jnp.float32), symbolic((2 * b, 4), jnp.float32)
    )
    path = tmp_path_factory.mktemp("symbolic") / "model.stablehlo"
    path.write_bytes(made.mlir_module_serialized)
    return path


def test_a_module_of_jax_export_takes_sizes_by_their_names(exported: Path) -> None:
    with pytest.raises(ProgramError, match=r"got none for b, t \(arg0 is b x t x 8, arg1 is 2\*b"):
        load(exported)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s, dtype=np.float32) for s in ((3, 5, 8), (6, 4)))
    program = load(exported, dims={"b": 3, "t": 5})
    assert [kind.shape for kind in program.graph.argument_types] == [(3, 5, 8), (6, 4)]
    np.testing.assert_allclose(jitted(program)(x, y)[0], function(x, y), rtol=1e-5, atol=1e-5)
    with pytest.raises(ProgramError, match=r"that holds for arguments of tensor<3x.*does not"):
        load(exported, dims={"b": 3, "t": 5, "2*b": 7})


def test_several_sizes_are_several_programs(exported: Path) -> None:
    programs = load_variants(exported, dims={"b": (1, 4), "t": (2,)})
    assert [p.name for p in programs] == ["model b=1 t=2", "model b=4 t=2"]
    with pytest.raises(ProgramError, match=r"one size of the dimension b.*load_variants takes"):
        load(exported, dims={"b": (1, 4), "t": 2})  # type: ignore[dict-item]


def test_dynamic_dimensions_without_names_are_called_by_their_places(tmp_path: Path) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(
        "func.func @main(%x: tensor<?x4xf32>, %y: tensor<3xf32>) -> tensor<?x4xf32> {\n"
        "  %0 = stablehlo.add %x, %x : tensor<?x4xf32>\n  return %0 : tensor<?x4xf32>\n}\n"
    )
    with pytest.raises(ProgramError, match=r"got none for arg0\.0 \(arg0 is arg0\.0 x 4\)"):
        load(path)
    program = load(path, dims={"arg0.0": 6})
    assert [kind.shape for kind in program.graph.result_types] == [(6, 4)]


def test_types_of_arguments_have_names_for_sizes() -> None:
    program = load("jax.numpy:tanh", argument_types=["f32[batch,4]"], dims={"batch": 3})
    assert program.graph.argument_types[0].shape == (3, 4)
    with pytest.raises(ProgramError, match=r"got 'batch' in .* as in --dim batch=8"):
        load("jax.numpy:tanh", argument_types=["f32[batch,4]"])
    with pytest.raises(ProgramError, match="symbolic dimensions alone, got time with"):
        load("jax.numpy:tanh", argument_types=["f32[3,4]"], dims={"time": 3})

"""Replacements in the places of sites leave a program's results alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.calling.splice import splice
from hlotune.hlo.canonical import canonical
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import Graph
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.sites.sites import Site, choose, sites
from hlotune.schedules.errors import ProgramError
from tests.hlo.test_sites_choice import graphs
from tests.support.cut import firsts

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(0)
WEIGHTS = (RNG.normal(size=(16, 16)) / 4).astype(np.float32)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def own_text(site: Site) -> str:
    """The kernel itself as its replacement."""
    return site.kernel.text.replace("@kernel", "@main")


def mlp(params: dict[str, Any], x: jax.Array) -> dict[str, jax.Array]:
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return {"hidden": hidden, "y": jax.nn.gelu(hidden @ params["v"])}


def block(x: jax.Array, w: jax.Array, short: jax.Array, scale: jax.Array) -> jax.Array:
    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    y = jax.nn.relu(convolve(x, w) * lax.rsqrt(scale + 1e-5))
    return jax.nn.relu(convolve(y, w) * scale + convolve(x, short))


def loop(x: jax.Array, w: jax.Array) -> Any:
    return lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y @ w + i) @ WEIGHTS, x)


def scanned(x: jax.Array, ws: jax.Array) -> Any:
    def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = lax.cond(x.sum() > 0, lambda: x @ w, lambda: jnp.tanh(x @ WEIGHTS))
        return y, y.sum()

    return lax.scan(step, x, ws)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / 4
    mask = jnp.tril(jnp.ones(scores.shape[1:], bool))
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)) @ v


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    y = lax.conv_general_dilated(x, w, (2,), [(2, 1)], (1,), (2,), feature_group_count=2)
    return (jnp.tanh(y) ** 2).sum()


def gate(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
    """The second dot's scale is the small result of the first one's group."""
    return (y @ w) * jax.nn.sigmoid(-(x @ w))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, ({"w": array(8, 16), "b": array(16), "v": array(16, 4)}, array(3, 8))),
    "block": (block, (array(2, 6, 6, 4), array(3, 3, 4, 4), array(1, 1, 4, 4), abs(array(4)))),
    "loop": (loop, (array(4, 16), array(16, 16) / 4)),
    "scanned": (scanned, (array(4, 16), array(5, 16, 16) / 4)),
    "attention": (attention, (array(2, 5, 8), array(2, 5, 8), array(2, 5, 8))),
    "gate": (gate, (array(16), array(16, 16) / 4, array(8, 16))),
    "gradient": (jax.grad(loss, (0, 1)), (array(6, 2, 3), array(3, 4, 9))),
}


def assert_close(got: Any, wanted: Any) -> None:
    """Leaf by leaf; trees of another structure raise."""
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6), got, wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_spliced_back_unchanged_leave_the_results_alone(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = load(function, *arguments)
    chosen = firsts(program)
    assert chosen
    spliced = splice(program, {site: own_text(site) for site in chosen})
    assert spliced.hidden == ()
    wanted = jax.jit(function)(*arguments)
    assert_close(jitted(program)(*arguments), wanted)
    assert_close(jitted(program, spliced.bytecode)(*arguments), wanted)


@pytest.mark.parametrize("name", ["mlp", "block", "loop"])
def test_every_alternative_alone_leaves_the_results_alone(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = load(function, *arguments)
    wanted = jax.jit(function)(*arguments)
    for site in sites(program):
        spliced = splice(program, {site: own_text(site)})
        assert_close(jitted(program, spliced.bytecode)(*arguments), wanted)


def evaluate(graph: Graph, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Runs a graph of `graphs` modulo 7, `tanh` adding one: numbers stay exact."""
    values = [x, y]
    for op in graph.ops:
        a, *rest = (values[v] for v in op.operands)
        name = op.name.partition(".")[2]
        if name == "dot_general":
            values.append(a @ rest[0] % 7)
        elif name == "add":
            values.append((a + rest[0]) % 7)
        else:
            values.append((a + 1) % 7 if name == "tanh" else a.T)
    return [values[r] for r in graph.results]


def text_of(graph: Graph) -> str:
    return canonical(graph).replace("@kernel", "@main")


@given(graphs(), st.randoms(use_true_random=False))
def test_splicing_any_disjoint_sites_keeps_what_is_computed(graph: Graph, random: Any) -> None:
    module = mlir.parse(text_of(graph))
    program = Program("g", "g", module.bytecode(), mlir.graph(module))
    found = sites(program)
    chosen = choose(found, {s.kernel.key: (1.0, random.random()) for s in found})
    spliced = mlir.graph(mlir.parse(splice(program, {s: own_text(s) for s in chosen}).bytecode))
    x, y = np.arange(16).reshape(4, 4) % 7, np.arange(16, 32).reshape(4, 4) % 5
    for before, after in zip(evaluate(program.graph, x, y), evaluate(spliced, x, y), strict=True):
        np.testing.assert_array_equal(before, after)


def doubled(site: Site) -> str:
    """A replacement of `x @ w` that multiplies by an argument of its own in the place of w."""
    assert len(site.arguments) == 2
    return """func.func @main(%x: tensor<4x16xf32>, %w: tensor<16x16xf32>,
        %packed: tensor<16x16xf32>) -> tensor<4x16xf32> {
      %y = stablehlo.dot_general %x, %packed, contracting_dims = [1] x [0]
        : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
      return %y : tensor<4x16xf32> }"""


def test_further_arguments_of_a_replacement_are_hidden_arguments_of_the_program() -> None:
    x = array(4, 16)
    program = load(lambda x: jnp.tanh(x) + jnp.sin(x @ WEIGHTS).sum(), x)
    site = next(s for s in sites(program) if len(s.ops) == 1)
    spliced = splice(program, {site: doubled(site)})
    assert spliced.hidden == ((site, 0),)
    got = jitted(program, spliced.bytecode, hidden_values=[2 * WEIGHTS])(x)
    np.testing.assert_allclose(got, np.tanh(x) + np.sin(2 * x @ WEIGHTS).sum(), rtol=1e-5)
    assert len(spliced.bytecode) < len(program.bytecode)  # the constant is gone


def test_hidden_arguments_reach_into_loops() -> None:
    x = array(4, 16)
    program = load(lambda x: lax.fori_loop(0, 3, lambda _, y: y @ WEIGHTS, x), x)
    site = sites(program)[0]
    spliced = splice(program, {site: doubled(site)})
    got = jitted(program, spliced.bytecode, hidden_values=[2 * WEIGHTS])(x)
    wanted = x @ (2 * WEIGHTS) @ (2 * WEIGHTS) @ (2 * WEIGHTS)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_missing_hidden_value_is_an_error() -> None:
    program = load(lambda x: x @ WEIGHTS, array(4, 16))
    site = sites(program)[0]
    spliced = splice(program, {site: doubled(site)})
    with pytest.raises(ProgramError, match="expected 1 hidden values, got 0"):
        jitted(program, spliced.bytecode)


def test_sites_that_share_operations_are_refused() -> None:
    program = load(lambda x: jnp.tanh(x @ WEIGHTS), array(4, 16))
    with pytest.raises(ProgramError, match=r"share no operation, got dot0 and dot0\.bare"):
        splice(program, {s: own_text(s) for s in sites(program)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "expected a replacement that MLIR reads"),
        ("module {}", "expected a module with a function @main"),
        (
            "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }",
            r"expected a replacement of dot0 with the types \(tensor<4x16xf32>",
        ),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(text: str, message: str) -> None:
    program = load(lambda x: x @ WEIGHTS, array(4, 16))
    site = sites(program)[0]
    with pytest.raises(ProgramError, match=message):
        splice(program, {site: text})


def test_a_jitted_program_takes_and_gives_the_original_pytrees() -> None:
    def f(params: dict[str, jax.Array], unused: jax.Array) -> tuple[dict[str, jax.Array], None]:
        return {"y": params["x"] + 1}, None

    program = load(f, {"x": array(3)}, array(2))
    got, none = jitted(program)({"x": np.zeros(3, np.float32)}, array(2))
    assert none is None
    assert got["y"].tolist() == [1, 1, 1]


def test_arguments_of_another_structure_are_refused() -> None:
    program = load(lambda p: p["x"] + 1, {"x": array(3)})
    with pytest.raises(TypeError, match=r"expected \{'x': \*\} as p, got an array; pass that"):
        jitted(program)(array(3))


def test_kept_operations_run() -> None:
    x = array(3, 5)

    def f(x: jax.Array) -> Any:
        return jax.scipy.special.erf(x), lax.erfc(x), lax.top_k(x, 2)

    assert_close(jitted(load(f, x))(x), jax.jit(f)(x))


def test_donated_arguments_of_a_file_are_gone_behind_a_call(tmp_path: Any) -> None:
    x = jnp.asarray(array(3))
    path = tmp_path / "add.mlir"
    path.write_text(jax.jit(lambda x: x + 1, donate_argnums=0).lower(x).as_text())
    run = jitted(load(path))
    wanted = (np.asarray(x) + 1).tolist()
    assert run(x)[0].tolist() == wanted
    assert x.is_deleted()


def test_a_file_takes_flat_arrays_and_gives_a_tuple(tmp_path: Any) -> None:
    path = tmp_path / "add.mlir"
    path.write_text(
        """func.func @main(%x: tensor<3xf64>, %unused: tensor<2xi64>)
               -> (tensor<3xf64>, tensor<2xi64>) {
             %y = stablehlo.add %x, %x : tensor<3xf64>
             return %y, %unused : tensor<3xf64>, tensor<2xi64> }"""
    )
    doubled, same = jitted(load(path))(np.array([1e300, 2, 3]), np.array([1, 2**40]))
    assert doubled.tolist() == [2e300, 4, 6]
    assert same.tolist() == [1, 2**40]

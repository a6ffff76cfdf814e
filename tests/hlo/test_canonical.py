"""Equal programs have equal texts, and the texts are programs."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export, lax

from hlotune.hlo.canonical import argument_order, canonical, fingerprint, graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.graph import Graph, Literal, Op, TensorType
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir import module as mlir

pytestmark = pytest.mark.smoke

T, CUBE = "tensor<3x4xf32>", "tensor<4x4x4xf32>"
OF_TWO = f"{{0}}, {{1}} : {CUBE}"
PAIR = f"({CUBE}, {CUBE}) -> {CUBE}"
GROUPS = "{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}"
HIGHEST = "precision = [HIGHEST, HIGHEST]"


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))


def exact_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dot_general(a, b, (((0,), (2,)), ((2,), (1,))), precision="highest")


def conv(x: jax.Array, w: jax.Array) -> jax.Array:
    spec = "NWC", "WIO", "NWC"
    return lax.conv_general_dilated(x, w, (1,), [(1, 2)], dimension_numbers=spec)


def conv_of_planes(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1,), [(3, 3)], rhs_dilation=(2,))


KINDS: dict[str, tuple[str, Callable[..., jax.Array]]] = {
    "add": (f"add {OF_TWO}", lax.add),
    "subtract": (f"subtract {OF_TWO}", lax.sub),
    "multiply": (f"multiply {OF_TWO}", lax.mul),
    "maximum": (f"maximum {OF_TWO}", lax.max),
    "tanh": (f"tanh {{0}} : {CUBE}", lax.tanh),
    "negate": (f"negate {{0}} : {CUBE}", lax.neg),
    "abs": (f"abs {{0}} : {CUBE}", lax.abs),
    "dot": (
        f"dot_general {{0}}, {{1}}, batching_dims = [0] x [0], contracting_dims = [2] x [1] "
        f": {PAIR}",
        dot,
    ),
    "exact dot": (
        f"dot_general {{0}}, {{1}}, batching_dims = [2] x [1], contracting_dims = [0] x [2], "
        f"{HIGHEST} : {PAIR}",
        exact_dot,
    ),
    "conv": (
        f"convolution({{0}}, {{1}}) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
        f"window = {{{{pad = [[1, 2]]}}}} {GROUPS} : {PAIR}",
        conv,
    ),
    "conv of planes": (
        f"convolution({{0}}, {{1}}) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], "
        f"window = {{{{pad = [[3, 3]], rhs_dilate = [2]}}}} {GROUPS} : {PAIR}",
        conv_of_planes,
    ),
}
"""Operations of cubes that give a cube: as StableHLO writes them, and as JAX does."""
Statement = tuple[str, tuple[int, ...]]


def arity(name: str) -> int:
    return 2 if "{1}" in KINDS[name][0] else 1


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[Statement]]:
    """A number of arguments, and statements that each take earlier values."""
    arguments = draw(st.integers(1, 3))
    statements: list[Statement] = []
    for i in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(tuple(KINDS)))
        values = st.integers(0, arguments + i - 1)
        operands = tuple(draw(values) for _ in range(arity(name)))
        statements.append((name, operands))
    return arguments, statements


def text_of(arguments: int, statements: list[Statement], order: list[int], prefix: str) -> str:
    """The program with its statements in this order, and its values under this name."""
    lines = []
    for i in order:
        name, operands = statements[i]
        operation = KINDS[name][0].format(*(f"%{prefix}{v}" for v in operands))
        lines.append(f"%{prefix}{arguments + i} = stablehlo.{operation}")
    signature = ", ".join(f"%{prefix}{i}: {CUBE}" for i in range(arguments))
    last = f"%{prefix}{arguments + len(statements) - 1}"
    body = "\n".join(lines)
    return f"func.func @main({signature}) -> {CUBE} {{ {body}\n return {last} : {CUBE} }}"


def function_of(statements: list[Statement], order: list[int]) -> Callable[..., jax.Array]:
    """The program as JAX's, its statements in this order."""

    def function(*arguments: jax.Array) -> jax.Array:
        values = dict(enumerate(arguments))
        for i in order:
            name, operands = statements[i]
            values[len(arguments) + i] = KINDS[name][1](*(values[v] for v in operands))
        return values[len(arguments) + len(statements) - 1]

    return function


def another_order(data: st.DataObject, arguments: int, statements: list[Statement]) -> list[int]:
    """Any order in which values are defined before they are used."""
    left, order = list(range(len(statements))), []
    while left:
        ready = [
            i
            for i in left
            if all(v < arguments or v - arguments in order for v in statements[i][1])
        ]
        order.append(data.draw(st.sampled_from(ready)))
        left.remove(order[-1])
    return order


@given(st.data())
def test_names_and_the_order_of_statements_do_not_matter(data: st.DataObject) -> None:
    arguments, statements = data.draw(programs())
    straight = text_of(arguments, statements, list(range(len(statements))), "v")
    shuffled = text_of(arguments, statements, another_order(data, arguments, statements), "other")
    first, second = (canonical(mlir.graph(mlir.parse(t))) for t in (straight, shuffled))
    assert first == second
    assert canonical(graph_of(Kernel(first))) == first


def exports(function: Callable[..., jax.Array], arguments: list[Any]) -> export.Exported:
    return export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments)


@given(st.data())
def test_what_jax_exports_has_the_text_of_what_was_written(data: st.DataObject) -> None:
    """Traced, in a file of an export, and in one of an export of what calls the export."""
    arguments, statements = data.draw(programs())
    written = text_of(arguments, statements, list(range(len(statements))), "v")
    function = function_of(statements, another_order(data, arguments, statements))
    cubes = [argument("f32[4,4,4]")] * arguments
    exported = exports(function, cubes)
    again = exports(exported.call, cubes)
    with TemporaryDirectory() as folder:
        files = {
            "written.mlir": written.encode(),
            "exported.mlir": exported.mlir_module().encode(),
            "exported.mlirbc": exported.mlir_module_serialized,
            "again.mlirbc": again.mlir_module_serialized,
        }
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        loaded = [load(Path(folder) / name) for name in files]
    loaded += [load(function, *cubes), load(again.call, *cubes)]
    texts = {canonical(program.graph) for program in loaded}
    assert len(texts) == 1, texts
    assert len({program.key for program in loaded}) == 1


@given(programs(), st.data())
def test_another_statement_gives_another_text(
    program: tuple[int, list[Statement]], data: st.DataObject
) -> None:
    """The last one: its result is the program's."""
    arguments, statements = program
    name, operands = statements[-1]
    others = [k for k in KINDS if k != name and arity(k) == len(operands)]
    changed = [*statements[:-1], (data.draw(st.sampled_from(others)), operands)]
    order = list(range(len(statements)))
    first, second = (
        canonical(mlir.graph(mlir.parse(text_of(arguments, s, order, "v"))))
        for s in (statements, changed)
    )
    assert first != second


def every_kind(x: jax.Array, w: jax.Array, a: jax.Array, b: jax.Array) -> object:
    y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    d = lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))), precision="highest")
    moved = lax.rev(a, (0,)), lax.pad(a, 0.0, ((1, 1, 0), (0, 0, 1), (0, 0, 0))), a.T
    picked = a[jnp.array([0, 1])], a.at[0].add(1.0), lax.dynamic_slice(a, (0, 0, 0), (1, 1, 2))
    ordered = lax.sort(a, dimension=1), jnp.argmax(a, 1), lax.top_k(a, 2), jnp.cumsum(a, 0)
    special = lax.erfc(a), jax.scipy.special.erf(a), lax.reduce_precision(a, 5, 10), jnp.isnan(a)
    looped = lax.fori_loop(0, 3, lambda i, c: c + jnp.sin(a) * i, a)
    branched = lax.cond(a[0, 0, 0] > 0, lambda: a, lambda: jnp.tanh(a * 2))
    mixed = lax.clamp(0.1, a, 1.3e-8), lax.iota(jnp.uint8, 5), a.astype(jnp.bfloat16)
    return y, d, moved, picked, ordered, special, looped, branched, mixed


SHAPES = [argument(text) for text in ("f32[1,8,8,3]", "f32[3,3,3,4]", "f32[2,3,4]", "f32[2,4,5]")]


def test_the_text_of_every_kind_of_operation_parses_and_is_its_own_canonical_text() -> None:
    text = canonical(load(every_kind, *SHAPES).graph)
    assert canonical(graph_of(Kernel(text))) == text


def test_exporting_again_gives_the_same_text() -> None:
    first, second = (canonical(load(every_kind, *SHAPES).graph) for _ in range(2))
    assert first == second


def test_gradients_of_grouped_and_dilated_convolutions_are_their_own_canonical_text() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (2,), [(2, 1)], (1,), (2,), feature_group_count=2)
        return (y * y).sum()

    shapes = [argument("f32[3,4,9]"), argument("f32[6,2,3]")]
    text = canonical(load(jax.grad(loss, (0, 1)), *shapes).graph)
    assert canonical(graph_of(Kernel(text))) == text
    assert "feature_group_count = 2" in text


def test_a_written_default_is_no_difference() -> None:
    op = '"stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 2>NOTE}>'
    body = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>"""
    texts = set()
    for note in ("", ", window_strides = array<i64: 1>, padding = dense<0> : tensor<1x2xi64>"):
        text = f"""func.func @main(%x: tensor<4xf32>, %z: tensor<f32>) -> tensor<3xf32> {{
          %y = {op.replace("NOTE", note)} {body}
          return %y : tensor<3xf32> }}"""
        texts.add(canonical(mlir.graph(mlir.parse(text))))
    assert len(texts) == 1


def test_operands_of_commutative_operations_keep_their_order() -> None:
    def add(first: str, second: str) -> str:
        return canonical(mlir.graph(mlir.parse(
            f"""func.func @main(%a: {T}, %b: {T}) -> ({T}, {T}) {{
              %t = stablehlo.tanh %a : {T}
              %s = stablehlo.add {first}, {second} : {T}
              return %t, %s : {T}, {T} }}"""
        )))  # fmt: skip

    assert add("%a", "%b") != add("%b", "%a")


def test_arguments_stand_by_first_use_and_unused_ones_last() -> None:
    program = load(lambda unused, a, b: jnp.tanh(b) - a, 1.0, 2.0, 3.0)
    _, a, b = program.graph.arguments
    assert argument_order(program.graph) == (b, a, program.graph.arguments[0])


def test_marks_of_constants_are_part_of_the_text() -> None:
    text = f"func.func @main(%a: {T} {{hlotune.constant}}) -> {T} {{ return %a : {T} }}"
    marked = canonical(mlir.graph(mlir.parse(text)))
    assert f"%arg0: {T} {{hlotune.constant}}" in marked
    assert graph_of(Kernel(marked)).constants == {0}


def test_operations_that_no_result_needs_are_left_out() -> None:
    text = f"""func.func @main(%a: {T}) -> {T} {{
      %unused = stablehlo.tanh %a : {T}
      return %a : {T} }}"""
    assert "tanh" not in canonical(mlir.graph(mlir.parse(text)))


def test_a_chain_of_thousands_of_operations_is_no_problem() -> None:
    kind = TensorType((2,), "f32")
    ops = tuple(Op("stablehlo.tanh", (i,), (i + 1,)) for i in range(5000))
    graph = Graph((kind,) * 5001, (0,), ops, (5000,))
    assert canonical(graph).count("tanh") == 5000


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("f32", 32), ("f64", 64), ("bf16", 16), ("f16", 16), ("i8", 8), ("ui64", 64)],
)
def test_every_bit_of_a_constant_survives(dtype: str, bits: int) -> None:
    rng = np.random.default_rng(0)
    special = [0, 1, 1 << (bits - 1), (1 << bits) - 1, 0x7F80 << (bits - 16) if bits > 8 else 3]
    numbers = special + [int(x) >> (64 - bits) for x in rng.integers(0, 2**64, 40, np.uint64)]
    data = b"".join(n.to_bytes(bits // 8, "little") for n in numbers)
    literal = Literal(TensorType((5, 9), dtype), data, False)
    op = Op("stablehlo.constant", (), (0,), (("value", literal),))
    text = canonical(Graph((literal.type,), (), (op,), (0,)))
    assert graph_of(Kernel(text)).ops[0]["value"] == literal


@pytest.mark.parametrize("shape", [(), (1,), (2, 0), (2, 3, 1)])
def test_constants_of_every_shape_survive(shape: tuple[int, ...]) -> None:
    numbers = np.arange(int(np.prod(shape)), dtype=np.int32) + 1
    splat = numbers.size == 1 and shape != ()
    literal = Literal(TensorType(shape, "i32"), numbers.tobytes(), splat)
    op = Op("stablehlo.constant", (), (0,), (("value", literal),))
    text = canonical(Graph((literal.type,), (), (op,), (0,)))
    assert graph_of(Kernel(text)).ops[0]["value"] == literal


def test_shapes_alone_keep_the_family_and_change_the_key() -> None:
    def kernel(rows: int) -> Kernel:
        return Kernel(canonical(load(jnp.tanh, argument(f"f32[{rows},8]")).graph))

    assert kernel(4).family == kernel(40).family
    assert kernel(4).key != kernel(40).key


def window_kernel(features: int, shape: tuple[int, ...] = (1, 16, 16, 8), **options: Any) -> Kernel:
    groups = options.get("feature_group_count", 1)
    weights = jnp.zeros((3, 3, shape[-1] // groups, features), jnp.float32)

    def model(x: Any, w: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        given = {"window_strides": (1, 1), "padding": [(1, 1), (1, 1)], **options}
        return lax.conv_general_dilated(x, w, dimension_numbers=layout, **given)

    return Kernel(canonical(load(model, jnp.zeros(shape, jnp.float32), weights).graph))


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "dense": {},
    "strided": {"window_strides": (2, 2)},
    "dilated": {"rhs_dilation": (2, 2)},
    "transposed": {"lhs_dilation": (2, 2)},
    "depthwise": {"feature_group_count": 8},
}


def test_kinds_of_convolutions_are_families_and_their_sizes_are_not() -> None:
    families = {name: window_kernel(8, **options).family for name, options in CONVOLUTIONS.items()}
    assert len(set(families.values())) == len(CONVOLUTIONS)
    for name, options in CONVOLUTIONS.items():
        larger = window_kernel(24, (2, 20, 24, 8), **options)
        assert larger.family == families[name], name


@pytest.mark.parametrize("other", ["f16", "f64", "bf16", "i8"])
def test_element_types_are_families(other: str) -> None:
    text = "func.func @kernel(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>) { }"
    assert Kernel(text).family != Kernel(text.replace("f32", other)).family


def test_ranks_are_families() -> None:
    text = "func.func @kernel(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>) { }"
    assert Kernel(text).family != Kernel(text.replace("4x4x", "4x4x4x")).family


def test_extents_windows_counts_and_ranks_are_of_one_form_and_operations_are_not() -> None:
    assert len({window_kernel(8, **options).form for options in CONVOLUTIONS.values()}) == 1

    def mean(*shape: int) -> Kernel:
        found = canonical(load(lambda x: x.mean(-1), np.ones(shape, np.float32)).graph)
        return Kernel(found)

    assert mean(4, 8).form == mean(2, 4, 9).form
    assert mean(4, 8).family != mean(4, 9).family  # by its constant
    text = "func.func @kernel(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>) { tanh }"
    assert Kernel(text).form == Kernel(text.replace("f32", "f64")).form
    assert Kernel(text).form != Kernel(text.replace("tanh", "exp")).form


def test_a_fingerprint_tells_large_constants_apart_without_spelling_them() -> None:
    def graph(seed: int) -> Graph:
        values = np.random.default_rng(seed).normal(size=1000)
        literal = Literal(TensorType((1000,), "f64"), values.tobytes(), False)
        op = Op("stablehlo.constant", (), (0,), (("value", literal),))
        return Graph((literal.type,), (), (op,), (0,))

    assert fingerprint(graph(0)) == fingerprint(graph(0)) != fingerprint(graph(1))


def test_values_are_numbered_in_the_order_of_the_text() -> None:
    text = canonical(load(every_kind, *SHAPES).graph)
    outermost = re.findall(r"^  (?:%(\d+)(?::\d+)? = )", text, re.MULTILINE)
    numbers = [int(n) for n in outermost]
    assert all(a < b for a, b in itertools.pairwise(numbers))

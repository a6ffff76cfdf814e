"""Coordinates of points: short axes are written out, so that pairs of points are one kernel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.graph import Literal
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.hlo.test_program import load_text
from tests.hlo.test_row_programs import FORWARD, distances, kernels

POINTS = argument("f32[128,2]")


def computes(name: str) -> list[Compute]:
    return [compute_of(graph_of(s.kernel)) for s in kernels(FORWARD[name], "f32")]


def in_loop(step: Callable[[jax.Array], jax.Array], x: Any) -> list[Site]:
    found = sites(load(lambda x: lax.fori_loop(0, 3, lambda _, y: step(y), x), x))
    return [s for s in found if s.path]


def test_a_sum_over_coordinates_is_an_expression() -> None:
    (compute,) = computes("distances of points")
    assert not any(s.reduce for s in compute.stages)
    assert {a.extent for s in compute.stages for a in s.axes} == {70, 81}


def test_results_with_few_coordinates_are_as_many_results_of_one_stage() -> None:
    (compute,) = computes("forces on points")
    (summed,) = [s for s in compute.stages if s.reduce]
    assert len(summed.stores) == 3 and [a.extent for a in summed.axes] == [70, 70]


def test_coordinates_of_points_are_loaded_with_those_of_their_neighbours() -> None:
    (site,) = sites(load(distances, argument("f32[64,3]"), argument("f32[128,3]")))
    compute = compute_of(graph_of(site.kernel))
    target = TARGETS["znver4"]
    space = space_of(compute, target)
    text = emit(replay(compute, space.schedule(space.heuristic()), target)).text
    assert "shufflevector <16 x float>" in text and "masked.gather" not in text


def test_a_result_of_many_operations_is_read_by_the_sum_of_it() -> None:
    first, _ = computes("forces on both of a pair")
    (summed,) = [s for s in first.stages if s.reduce]
    roles = {x.tensor: first.tensor(x.tensor).role for x in summed.loads}
    assert set(roles.values()) == {"result"}


def test_axes_that_merge_with_their_neighbours_are_left_as_they_are() -> None:
    (site,) = sites(load(lambda x: jnp.tanh(x) * 2, POINTS))
    (stage,) = compute_of(graph_of(site.kernel)).stages
    assert [a.extent for a in stage.axes] == [256] and len(stage.stores) == 1


def test_few_results_keep_their_reduction() -> None:
    (site,) = sites(load(lambda x: x.sum(-1), argument("f32[9,3]")))
    assert any(s.reduce for s in compute_of(graph_of(site.kernel)).stages)


def scaled(x: jax.Array) -> jax.Array:
    """Broadcasts of numbers, and of what is computed of numbers alone."""
    half = jnp.float32(11.0) * jnp.float32(0.5)
    pairs = (x[None] - x[:, None] + half) * (jnp.float32(1) / jnp.float32(3))
    return jnp.where(pairs > half, pairs, jnp.float32(2)).sum(1)


def test_a_kernel_in_a_loop_takes_no_tensor_of_equal_numbers() -> None:
    largest = max(in_loop(scaled, POINTS), key=lambda s: len(s.ops))
    assert max(t.elements for t in graph_of(largest.kernel).argument_types) == 256


LOOP = """func.func @main(%x: tensor<128x2xf32>) -> tensor<128x2xf32> {{
  %a = stablehlo.constant dense<3.0> : tensor<f32>
  %b = stablehlo.constant dense<2.5> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %first = stablehlo.constant dense<0> : tensor<i32>
  {made}
  %all = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<128x2xf32>
  %0:2 = stablehlo.while(%i = %first, %y = %x) : tensor<i32>, tensor<128x2xf32>
  cond {{
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %p = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %next = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.tanh %y : tensor<128x2xf32>
    %w = stablehlo.multiply %z, %all : tensor<128x2xf32>
    stablehlo.return %next, %w : tensor<i32>, tensor<128x2xf32>
  }}
  return %0#1 : tensor<128x2xf32>
}}"""
FIVE = "%five = stablehlo.constant dense<5> : tensor<i32>\n"
LESS = "%less = stablehlo.compare LT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"


@pytest.mark.parametrize(
    ("made", "number"),
    [
        ("%c = stablehlo.add %a, %b : tensor<f32>", 5.5),
        ("%c = stablehlo.subtract %b, %a : tensor<f32>", -0.5),
        ("%c = stablehlo.multiply %a, %b : tensor<f32>", 7.5),
        ("%c = stablehlo.divide %b, %a : tensor<f32>", np.float32(2.5) / np.float32(3)),
        ("%c = stablehlo.negate %a : tensor<f32>", -3.0),
        (FIVE + "%c = stablehlo.convert %five : (tensor<i32>) -> tensor<f32>", 5.0),
        (f"{LESS}%c = stablehlo.convert %less : (tensor<i1>) -> tensor<f32>", None),
        ("%c = stablehlo.exponential %a : tensor<f32>", None),
    ],
)  # fmt: skip
def test_numbers_that_are_computed_of_numbers_ahead_of_a_loop_are_known(
    tmp_path: Path, made: str, number: float | None
) -> None:
    """All but converted truths, and what functions give, which compilers round differently."""
    body = [s for s in sites(load_text(tmp_path, LOOP.format(made=made))) if s.path]
    graph = graph_of(max(body, key=lambda s: len(s.ops)).kernel)
    values = [x for op in graph.ops for n, x in op.attributes if n == "value"]
    known = [x.array().flat[0] for x in values if isinstance(x, Literal)]
    assert known == ([] if number is None else [np.float32(number)])


def test_a_truth_that_is_known_ahead_of_a_loop_is_known_in_it(tmp_path: Path) -> None:
    made = f"""{LESS}
  %ps = stablehlo.broadcast_in_dim %less, dims = [] : (tensor<i1>) -> tensor<128x2xi1>
  %c = stablehlo.add %a, %b : tensor<f32>"""
    text = LOOP.format(made=made).replace(
        "multiply %z, %all : tensor<128x2xf32>",
        "select %ps, %z, %all : tensor<128x2xi1>, tensor<128x2xf32>",
    )
    body = [s for s in sites(load_text(tmp_path, text)) if s.path]
    assert "dense<true>" in max(body, key=lambda s: len(s.ops)).kernel.text

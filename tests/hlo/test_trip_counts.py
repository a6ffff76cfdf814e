"""Loops say by their counters how often they run; of others, and of branches, users do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.sites.trip_counts import HOLDS, Counter, Flow, flows
from hlotune.schedules.errors import ProgramError
from tests.hlo.test_program import load_text

pytestmark = pytest.mark.smoke
W = argument("f32[64,64]")
MOST = 200


@given(
    first=st.integers(-20, 20), step=st.integers(-7, 7), limit=st.integers(-20, 20),
    direction=st.sampled_from(sorted(HOLDS)),
)  # fmt: skip
def test_a_counter_runs_as_often_as_its_loop(
    first: int, step: int, direction: str, limit: int
) -> None:
    counted, value = 0, first
    while HOLDS[direction](value, limit) and counted < MOST:
        counted, value = counted + 1, value + step
    assert Counter(first, step, direction, limit).trips == (None if counted == MOST else counted)


def named(function: Any, *arguments: Any, **options: Any) -> dict[str, Flow]:
    program = load(function, *arguments, **options)
    return {flow.name: flow for flow in flows(program.graph, program.trips).values()}


def test_loops_of_jax_count_their_trips() -> None:
    def nested(x: Any) -> Any:
        def inner(y: Any, _: Any) -> Any:
            return y @ y, None

        scanned = lax.scan(inner, x, None, length=7)[0]
        down = lax.while_loop(lambda c: c[0] >= 3, lambda c: (c[0] - 2, c[1] @ x), (11, scanned))
        return lax.fori_loop(2, 12, lambda i, y: lax.scan(inner, y, None, length=4)[0], down[1])

    assert {name: flow.runs[1] for name, flow in named(nested, W).items()} == {
        "while0": 7, "while1": 5, "while2": 10, "while3": 4,
    }  # fmt: skip
    products = [s for s in sites(load(nested, W)) if s.pattern == "contraction"]
    assert sorted({s.weight for s in products}) == [5, 7, 40]


LOOP = """func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {{
  %first = stablehlo.constant dense<{first}> : tensor<i32>
  %0:2 = stablehlo.while(%i = %first, %y = %x) : tensor<i32>, tensor<64x64xf32>
  cond {{
    %limit = stablehlo.constant dense<{limit}> : tensor<i32>
    %p = stablehlo.compare {test} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %step = stablehlo.constant dense<{step}> : tensor<i32>
    %next = {change} : tensor<i32>
    %z = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0]
      : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    stablehlo.return %next, %z : tensor<i32>, tensor<64x64xf32>
  }}
  return %0#1 : tensor<64x64xf32>
}}"""


@pytest.mark.parametrize(
    ("first", "limit", "test", "step", "change", "trips"),
    [
        (0, 10, "LE, %i, %limit", 1, "stablehlo.add %i, %step", 11),
        (0, 10, "GT, %limit, %i", 3, "stablehlo.add %step, %i", 4),
        (10, 0, "NE, %i, %limit", 2, "stablehlo.subtract %i, %step", 5),
        (10, 0, "LE, %limit, %i", -5, "stablehlo.add %i, %step", 3),
        (0, 10, "LT, %i, %limit", 1, "stablehlo.subtract %step, %i", None),
        (1, 10, "LT, %i, %limit", 2, "stablehlo.multiply %i, %step", 4),
        (0, 10, "NE, %i, %limit", 3, "stablehlo.add %i, %step", None),
    ],
)
def test_counters_have_many_forms(
    first: int, limit: int, test: str, step: int, change: str, trips: int | None, tmp_path: Path
) -> None:
    text = LOOP.format(first=first, limit=limit, test=test, step=step, change=change)
    (flow,) = flows(load_text(tmp_path, text).graph, {}).values()
    why = "not evident" if trips is None else "its counter"
    assert flow == ("while0", (float(trips or 1),) * 2, why)


def test_loops_without_a_plain_counter_are_run_to_be_counted() -> None:
    def halving(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] > 0.1, lambda c: (c[0] / 2, c[1] @ x), (4.0, x))[1]

    def two_conditions(x: Any) -> Any:
        def goes_on(c: Any) -> Any:
            return (c[0] < 100) & (c[0] + c[1] < 30)

        return lax.while_loop(goes_on, lambda c: (c[0] + 1, c[1] + 2, c[2] @ x), (0, 0, x))[2]

    def through_another(x: Any) -> Any:
        def step(c: Any) -> Any:
            return c[0] + c[1], jnp.where(c[1] < 8, 2 * c[1], c[1]), c[2] @ x

        return lax.while_loop(lambda c: c[0] < 40, step, (0, 1, x))[2]

    def with_a_break(x: Any) -> Any:
        def goes_on(c: Any) -> Any:
            return (c[0] < 100) & (jnp.abs(c[1]).sum() < 9)

        return lax.while_loop(goes_on, lambda c: (c[0] + 1, c[1] @ x), (0, x))[1]

    counted = [named(f, W)["while0"].runs[0] for f in (halving, two_conditions, through_another)]
    assert counted == [6, 10, 8]
    assert named(with_a_break, W)["while0"] == ("while0", (1, 1), "not evident")


def choosing(x: Any, p: Any) -> Any:
    y = lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ x, x)
    z = lax.cond(p > 0, lambda: y @ x + 1, lambda: y)
    return lax.switch(p, [lambda: z @ x, lambda: jnp.tanh(z) @ x, lambda: z])


P = argument("i32[]")


def test_branches_are_weighted_alike_until_someone_says_otherwise() -> None:
    found = named(choosing, W, P)
    assert found["while0"] == ("while0", (1, 1), "not evident")
    (_, two), (_, three) = ((n, f.runs) for n, f in found.items() if n != "while0")
    assert two == (0.5, 0.5) and three == pytest.approx((1 / 3,) * 3)


def test_what_users_say_of_trips_and_branches_is_the_weight_of_kernels() -> None:
    names = list(named(choosing, W, P))
    told: Mapping[str, Sequence[float]] = {"while0": [50], names[1]: [0.75, 0.25]}
    found = named(choosing, W, P, trips=told)
    assert found["while0"] == ("while0", (50, 50), "told")
    assert found[names[1]].runs == (0.75, 0.25)
    assert 50 in {s.weight for s in sites(load(choosing, W, P, trips=told))}
    assert named(choosing, W, P, trips={"": [8]})["while0"].runs == (8, 8)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"while7": [2]}, r"expected trips of case0, case1, while0, got 'while7'; `tune kernels`"),
        ({"while0": [2, 3]}, "expected 1 number from zero on for while0, got 2,3; a loop has one"),
        ({"while0": [-2]}, "expected 1 number from zero on for while0, got -2"),
        ({"case0": [1]}, "expected 2 numbers from zero on for case0, got 1; give the share of"),
    ],
)
def test_trips_that_fit_no_loop_are_refused(
    told: Mapping[str, Sequence[float]], message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        load(choosing, W, P, trips=told)

"""Whether a tuned program is right, on which inputs, and what is said where nobody can tell."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.cli.main import run_command
from hlotune.deploy.accuracy import Judge, require_known_calls
from hlotune.deploy.flat_calls import called
from hlotune.deploy.inputs import SCALES, example_inputs, random_inputs, tame_inputs
from hlotune.deploy.plain_values import BLOCK, Apart, apart, lost
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.oracle import Gap
from hlotune.schedules.errors import ProgramError
from tests.support.applied import normal


def shapes_of_a_deep_chain() -> Program:
    """Values of size 1 overflow in it, and it has no others of its own."""
    shape = jax.eval_shape(lambda: jnp.zeros((40, 40)))
    return load(lambda x, *ws: functools.reduce(jnp.matmul, ws, x), *[shape] * 60)


def test_random_values_are_drawn_so_small_that_results_are_finite() -> None:
    program = shapes_of_a_deep_chain()
    default = jitted(program)
    for inputs in tame_inputs(program, default):
        judge = Judge.of(program, default, inputs)
        (right,) = judge.judge(default, "standard")
        (wrong,) = judge.judge(lambda *v: (1.001 * np.asarray(default(*v)),), "standard")
        assert (right.compared, right.wrong) == (1.0, None)
        assert wrong.wrong is not None


def test_where_nothing_can_be_compared_nothing_is_said_to_be_right() -> None:
    program = shapes_of_a_deep_chain()
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (found,) = judge.judge(jitted(program), "standard")
    assert not found.is_checked
    assert (found.to_json()["tuned_error"], found.to_json()["compared"]) == (None, 0.0)


def test_infinities_where_the_default_has_none_are_wrong() -> None:
    program = load(lambda x: jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(3)), normal(3, 3))
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (found,) = judge.judge(lambda x: (np.full((3, 3), np.inf),), "standard")
    assert found.wrong is not None


def test_infinities_that_a_program_makes_on_purpose_are_to_be_kept() -> None:
    x = np.abs(normal(6, 6)) + 1
    program = load(lambda x: jnp.where(np.tri(6, dtype=bool), x * 2, -np.inf), x)
    judge = Judge.of(program, jitted(program), example_inputs(program))
    (right,) = judge.judge(jitted(program), "standard")
    (wrong,) = judge.judge(lambda x: (np.tril(x * 2),), "standard")
    assert (right.compared, right.wrong) == (21 / 36, None)
    assert wrong.wrong is not None and wrong.wrong.startswith("15 of 36 elements wrong")


def test_values_of_the_user_stay_as_they_are() -> None:
    x = np.full(3, 1e30, np.float32)
    program = load(lambda x: x * x, x)
    example, _ = tame_inputs(program, jitted(program))
    assert example.drawn == ()
    np.testing.assert_array_equal(example.values[0], x)


def test_a_result_without_elements_is_right() -> None:
    program = load(lambda x, w: (x @ w, x[:0] @ w), normal(3, 4), normal(4, 5))
    judge = Judge.of(program, jitted(program), example_inputs(program))
    found = judge.judge(jitted(program), "standard")
    assert [(a.wrong, a.compared) for a in found] == [(None, 1.0)] * 2


def test_examples_that_have_all_values_draw_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlotune.deploy.inputs.draw", None)
    x, y = normal(3, 4), normal(4)
    inputs = example_inputs(load(lambda x, y: x + y, x, y))
    assert inputs.drawn == ()
    for value, given in zip(inputs.values, (x, y), strict=True):
        np.testing.assert_array_equal(value, given)


def test_examples_of_some_arguments_alone_are_refused() -> None:
    x = normal(4)
    program = replace(load(lambda x, y: x + y, x, x), example_args=(x,))
    with pytest.raises(ProgramError, match=r"expected example values of all 2 arguments .* got 1"):
        example_inputs(program)


def test_zeros_and_shapes_are_no_inputs_to_time() -> None:
    def add(a: Any, b: Any, i: Any) -> Any:
        return a + b + i

    shape = jax.eval_shape(lambda: jnp.zeros(3))
    program = load(add, np.zeros(3, np.float32), shape, np.zeros(3, np.int32))
    inputs = example_inputs(program)
    assert inputs.drawn == (0, 1)
    assert np.any(inputs.values[0])


def test_a_program_that_the_oracle_does_not_know_is_held_against_the_default() -> None:
    def decomposed(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(3))

    program = load(decomposed, normal(3, 3))
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (same,) = judge.judge(jitted(program), "standard")
    (other,) = judge.judge(lambda x: decomposed(x) * 1.001, "standard")
    assert (same.default_error, same.wrong) == (None, None)
    assert same.unchecked is not None
    assert other.wrong is not None


def test_scales_are_tried_until_time_is_up() -> None:
    program, calls = load(lambda x: x * jnp.inf, normal(4, 4)), list[object]()
    default = jitted(program)

    def counted(x: object) -> Any:
        calls.append(x)
        return default(x)

    _, random = tame_inputs(program, counted)
    assert len(calls) == len(SCALES), "results are infinite at any scale"
    assert random.results is not None
    Judge.of(program, counted, random)
    assert len(calls) == len(SCALES), "what the default makes of them is known"
    calls.clear()
    (example,) = tame_inputs(program, counted, limit_s=-1.0)
    assert len(calls) == 1, "random inputs are left out where there is no time to tame them"
    assert example.name == "example"
    calls.clear()
    tame_inputs(program, counted, limit_s=0.2, call_s=0.5)
    assert not calls, "nor are any tried where one call takes longer"


def test_programs_of_long_calls_are_checked_with_the_example_alone() -> None:
    program = load(lambda x: 2 * x, normal(4, 4))
    default = jitted(program)
    names = [[x.name for x in tame_inputs(program, default, call_s=s)] for s in (0.9, 1.0)]
    assert names == [["example", "random"], ["example"]]


def test_what_the_default_makes_of_example_inputs_is_asked_once() -> None:
    shape = jax.eval_shape(lambda: jnp.zeros((4, 4)))
    program, calls = load(lambda x: 2 * x, shape), list[object]()
    example = example_inputs(program)

    def counted(x: object) -> Any:
        calls.append(x)
        return (2 * np.asarray(x),)

    known = replace(example, results=(2 * example.values[0],))
    first, _ = tame_inputs(program, counted, known=known)
    assert (first.values, first.results) == (known.values, known.results)
    assert len(calls) == 1, "for the random inputs alone"


def test_what_the_oracle_has_no_time_for_is_held_against_the_default_and_said_to_be() -> None:
    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 10**5, lambda _, y: 0.5 * (y @ y) + 0.25 * x, x)

    program = load(slow, np.eye(3, dtype=np.float32))
    judge = Judge.of(program, jitted(program), example_inputs(program), 0.2)
    (same,) = judge.judge(jitted(program), "standard")
    (other,) = judge.judge(lambda x: (2 * np.eye(3, dtype=np.float32),), "standard")
    assert (same.default_error, same.wrong) == (None, None)
    assert same.unchecked == "the oracle did not get through the program in 0.2 s"
    assert other.wrong is not None


def in_bf16(x: jax.Array) -> jax.Array:
    y = jnp.tanh(x.astype(jnp.bfloat16) @ jnp.ones((8, 8), jnp.bfloat16))
    return y.sum(0).astype(jnp.float32)


def from_a_table_of_bf16(x: jax.Array) -> jax.Array:
    table = jnp.arange(64, dtype=jnp.bfloat16).reshape(8, 8)
    rows = table[jnp.argsort(x[0])]
    return jnp.tanh(x) @ rows.astype(jnp.float32)


def masked_in_bf16(x: jax.Array) -> jax.Array:
    mask = (x > 0).astype(jnp.bfloat16).astype(jnp.float32)
    for _ in range(40):
        x = jnp.tanh(x @ x) + 1
    return x * mask


@pytest.mark.parametrize(
    ("function", "off", "is_wrong"),
    [
        (masked_in_bf16, 1e-4, True),
        (masked_in_bf16, 1e-6, False),
        (in_bf16, 1e-2, False),
        (in_bf16, 0.2, True),
        (from_a_table_of_bf16, 1e-2, True),
        (from_a_table_of_bf16, 1e-6, False),
    ],
)
def test_without_the_oracle_a_result_may_be_off_as_its_program_rounds(
    function: Callable[[jax.Array], jax.Array], off: float, is_wrong: bool
) -> None:
    program = load(function, normal(8, 8))
    default = jitted(program)
    asked = Judge.of(program, default, example_inputs(program))
    judge = replace(asked, references=(Gap("no time"),))
    (found,) = judge.judge(lambda x: ((1 + off) * np.asarray(default(x)),), "standard")
    assert found.default_error is None
    assert (found.wrong is not None) is is_wrong


def test_a_default_that_does_not_agree_with_the_reference_is_said_to() -> None:
    program = load(lambda x: 2 * x, normal(4, 4))

    def off(x: object) -> np.ndarray[Any, Any]:
        result = np.array(2 * np.asarray(x, np.float32))
        result[-1] += 1e-3
        return result

    judge = Judge.of(program, off, example_inputs(program))
    (found,) = judge.judge(jitted(program), "standard")
    assert found.wrong is None
    assert found.default_wrong is not None and found.default_wrong.startswith("4 of 16 elements")
    (said,) = judge.wrong_defaults()
    assert said.startswith(
        "XLA's own result 0 of the program on example inputs does not agree with the reference: 4 "
    )


def test_a_default_that_agrees_or_overflows_is_not_said_to_be_wrong() -> None:
    for program in (load(lambda x: 2 * x, normal(4, 4)), shapes_of_a_deep_chain()):
        judge = Judge.of(program, jitted(program), random_inputs(program))
        assert judge.wrong_defaults() == []


def below_the_normal_range(*shape: int) -> Any:
    return (normal(*shape) * 1e-39).astype(np.float32)


def products_of_tiny_values() -> list[Program]:
    """Where arguments, constants, and values on the way lie below the normal range."""
    x, w, tiny = normal(16, 8), below_the_normal_range(8, 4), normal(8, 4) * np.float32(1e-22)
    return [
        load(lambda x, w: x @ w, x, w),
        load(lambda x: x @ w, x),
        load(lambda x, w: ((x * np.float32(1e-22)) @ w) * np.float32(1e30), x, tiny),
    ]


def test_subnormal_values_that_all_flush_make_nothing_wrong() -> None:
    for program in products_of_tiny_values():
        default = jitted(program)
        judge = Judge.of(program, default, example_inputs(program))
        for function in (default, lambda *v, d=default: (np.zeros_like(d(*v)),)):
            (found,) = judge.judge(function, "standard")
            assert found.wrong is None and found.default_wrong is None
        (wrong,) = judge.judge(lambda *v, d=default: (np.ones_like(d(*v)),), "standard")
        assert wrong.wrong is not None


def test_a_program_of_normal_values_is_not_helped_by_flushing() -> None:
    program = load(lambda x, w: x @ w, normal(16, 8), normal(8, 4))
    default = jitted(program)
    judge = Judge.of(program, default, example_inputs(program))
    (found,) = judge.judge(lambda *v: (np.zeros_like(default(*v)),), "standard")
    assert found.wrong is not None


CUSTOM_CALL = """HloModule c
ENTRY main {
  a = f32[32,32] parameter(0)
  b = f32[32,32] parameter(1)
  r = f32[32,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT q = f32[32,32] custom-call(r), custom_call_target="my_op"
}
"""


def test_an_operation_that_xla_does_not_know_is_named_before_anything_is_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.hlo").write_text(CUSTOM_CALL)
    program = load(tmp_path / "program.hlo")
    message = r"expected a program that XLA compiles and runs here, got program, .*my_op"
    with pytest.raises(ProgramError, match=message):
        require_known_calls(program)
    with pytest.raises(ProgramError, match=message):
        called(program, jitted(program), example_inputs(program).values)
    words = ["run", str(tmp_path / "program.hlo"), "--database", str(tmp_path / "tuning.db")]
    assert run_command(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("tune: ")] == said[-1:]


def test_a_program_without_such_calls_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlotune.deploy.accuracy.called", None)
    require_known_calls(load(lambda x: x @ x, normal(4, 4)))


def test_large_results_are_compared_in_blocks_as_small_ones_at_once() -> None:
    rng = np.random.default_rng(3)
    wanted = rng.standard_normal(3 * BLOCK + 5).astype(np.float32)
    wanted[BLOCK:] *= 1e3
    got = wanted * (1 + 1e-4 * rng.standard_normal(wanted.size).astype(np.float32))
    wide = wanted.astype(np.float64)
    error = np.linalg.norm(got - wide) / np.linalg.norm(wide)
    assert apart(wanted, got).error == pytest.approx(error)
    large, off = 1e200 * wide[::-1], 1e200 * got[::-1].astype(np.float64)
    assert apart(large, off).error == pytest.approx(error)


@pytest.mark.parametrize("first", [0.0, 1e-200], ids=["zeros", "tiny values"])
def test_the_first_block_counts_whatever_its_values_are(first: float) -> None:
    wanted = np.ones(2 * BLOCK)
    wanted[:BLOCK] = first
    off = wanted.copy()
    off[:BLOCK] += 1000.0
    assert apart(wanted, off).error == pytest.approx(1000.0)
    assert apart(wanted[::-1], off[::-1]).error == pytest.approx(1000.0)
    near = wanted + 1e-16
    assert apart(wanted, near).error < 1e-15


def test_what_is_not_finite_is_left_out_where_it_is_expected_and_wrong_elsewhere() -> None:
    wanted = np.array([[1.0, np.inf], [np.nan, 3.0]], np.float32)
    assert apart(wanted, np.array([[1.0, 5.0], [6.0, 3.0]], np.float32)) == Apart(0.0, 0.5)
    broken = np.array([[np.nan, 0.0], [0.0, 3.0]], np.float32)
    assert apart(wanted, broken) == Apart(np.inf, 0.5) and lost(wanted, broken) == 1
    nothing = apart(np.full(2, np.nan), np.ones(2))
    assert np.isnan(nothing.error) and nothing.compared == 0.0
    assert apart(np.zeros(3), np.zeros(3)).error == 0.0
    assert apart(np.zeros(3), np.ones(3)).error == np.inf
    assert apart(np.ones(2, np.complex64), np.array([1, 1 + 1j], np.complex64)).compared == 1.0

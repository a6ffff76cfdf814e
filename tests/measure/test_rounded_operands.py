"""GPUs round f32 operands of products to tf32 where a program leaves that to them, and no others.

No GPU is here: operands are rounded by other means, and kernels are interpreted.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.typing import NDArray

from hlotune.codegen.pallas import products
from hlotune.codegen.pallas.backend import BACKEND
from hlotune.codegen.pallas.elements import dot
from hlotune.deploy.accuracy import Judge
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.canonical import graph_of as graph_of_kernel
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.oracle import compare, evaluate, rounding
from hlotune.hlo.sites.sites import sites
from hlotune.measure.trial import Failure
from hlotune.measure.verification.inputs import draw
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.gpu.searched import SearchedSpace
from hlotune.schedules.targets.kinds import named_target
from hlotune.schedules.targets.target import F32Operands, Target
from hlotune.search.tasks import Task, tasks
from tests.support import interpreted_gpu
from tests.support.interpreted_gpu import INTERPRETED, INTERPRETED_TPU
from tests.support.oracle_cases import conv, graph_of, normal

F32 = NDArray[np.float32]
Rounding = Callable[[F32], F32]
F32_OPERANDS: tuple[F32Operands, F32Operands] = ("f32", "tf32")
HIGHEST = lax.Precision.HIGHEST
X, W = normal(1, 24, 40), normal(2, 40, 24)
IMAGE, WINDOW = normal(3, 2, 6, 6, 8), normal(4, 3, 3, 8, 16)


def cut_off(x: F32) -> F32:
    return (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def nearest(x: F32) -> F32:
    bits = np.asarray(x, np.float32).view(np.uint32) + np.uint32(1 << 12)
    return cut_off(bits.view(np.float32))


def off(function: Callable[..., Any], made: Any, *operands: F32, to: F32Operands = "tf32") -> bool:
    """Whether a result is further off than the oracle's bound."""
    with rounding(to):
        (reference,) = evaluate(graph_of(function, list(operands)), operands)
    return compare(reference, np.asarray(made), factor=1.0, exact=False) is not None


@pytest.mark.parametrize("rounded", [cut_off, nearest])
def test_the_bound_of_a_product_allows_for_rounded_operands(rounded: Rounding) -> None:
    made = rounded(X) @ rounded(W)
    assert not off(jnp.dot, made, X, W)
    assert off(jnp.dot, made, X, W, to="f32")
    assert off(partial(jnp.dot, precision=HIGHEST), made, X, W)
    assert off(partial(jnp.dot, precision=lax.Precision.HIGH), made, X, W)
    assert off(jnp.dot, rounded(X)[:, 1:] @ rounded(W)[1:], X, W)


@pytest.mark.parametrize("rounded", [cut_off, nearest])
def test_the_bound_of_a_convolution_allows_for_rounded_operands(rounded: Rounding) -> None:
    function = conv
    made = function(rounded(IMAGE), rounded(WINDOW))
    assert not off(function, made, IMAGE, WINDOW)
    assert off(function, made, IMAGE, WINDOW, to="f32")
    assert off(function, made.at[0, 0, 0, 0].add(0.5), IMAGE, WINDOW)


def test_an_operand_that_is_computed_is_rounded_as_well() -> None:
    made = cut_off(np.asarray(cut_off(X) @ cut_off(W))) @ cut_off(X)
    assert not off(lambda x, w: x @ w @ x, made, X, W)


def test_sums_of_what_tf32_holds_stay_exact() -> None:
    held, more = (np.full((4, 4), n, np.float32) for n in (2047, 2049))
    with rounding("tf32"):
        (exact,) = evaluate(graph_of(jnp.dot, [held, held]), [held, held])
        (rounds,) = evaluate(graph_of(jnp.dot, [more, more]), [more, more])
    assert (exact.exact, rounds.exact) == (True, False)


def test_operands_of_other_types_are_not_rounded() -> None:
    narrow = [X.astype(np.float16), W.astype(np.float16)]
    found = list[Any]()
    for to in F32_OPERANDS:
        with rounding(to):
            found += (r.bound for r in evaluate(graph_of(jnp.dot, narrow), narrow))
    np.testing.assert_array_equal(*found)
    assert found[0].max() > 0


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)


def task_of(function: Callable[..., Any], target: Target, numerics: Numerics = "standard") -> Task:
    (task,), _ = tasks(sites(load(function, X, W)), target, numerics)
    return task


def algorithm(task: Task) -> str:
    return task.space.schedule(task.space.heuristic()).algorithm.partition("(")[0]


def test_gpus_have_kernels_of_tf32_where_program_and_numerics_leave_that_to_them() -> None:
    h200 = named_target("cuda:h200")
    task = task_of(jnp.dot, h200)
    assert (algorithm(task), task.dtype) == ("tf32_blocks", "tf32")
    exact = task_of(jnp.dot, h200, "strict")
    assert (algorithm(exact), exact.dtype) == ("blocks", "f32")
    assert algorithm(task_of(partial(jnp.dot, precision=HIGHEST), h200)) == "blocks"
    assert algorithm(task_of(jnp.dot, named_target("tpu:v5e"))) == "blocks"
    assert isinstance(task.space, SearchedSpace)
    assert task.space.locate(exact.space.schedule(exact.space.heuristic())) is None
    assert task.space.locate(task.space.schedule(task.space.heuristic())) is not None


def test_a_kernel_that_rounds_is_refused_where_the_program_does_not_leave_that_to_it() -> None:
    schedule = task_of(jnp.dot, INTERPRETED).space.schedule
    config = task_of(jnp.dot, INTERPRETED).space.heuristic()
    asking = task_of(partial(jnp.dot, precision=HIGHEST), INTERPRETED)
    with pytest.raises(ScheduleError, match="leave their precision to a device with tf32"):
        BACKEND.emit(asking.compute, schedule(config), INTERPRETED)
    with pytest.raises(ScheduleError, match="take a schedule without tf32"):
        BACKEND.emit(task_of(jnp.dot, INTERPRETED).compute, schedule(config), INTERPRETED_TPU)


def verified(
    task: Task,
    change: Callable[[jax.Array], jax.Array],
    to: F32Operands,
    numerics: Numerics = "standard",
) -> Verdict | Failure:
    """The verdict on a kernel whose blocks of operands are changed ahead of their product."""

    def changed(a: jax.Array, b: jax.Array, *others: Any) -> jax.Array:
        return dot(change(a), change(b), *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "dot", changed)
        schedule = task.space.schedule(task.space.heuristic())
        built = BACKEND.emit(task.compute, schedule, INTERPRETED)
        return verify(task.kernel, built, numerics=numerics, references=References(task.kernel, to))


def test_a_kernel_that_rounds_its_operands_is_right_and_one_that_loses_a_term_is_not() -> None:
    def narrow(x: jax.Array) -> jax.Array:
        return lax.reduce_precision(x, 8, 10)

    task = task_of(jnp.dot, INTERPRETED)
    found = verified(task, narrow, "tf32")
    assert isinstance(found, Verdict)
    assert (found.numerics, 1e-5 < found.relative_error < 1e-3) == ("standard", True)
    exact = verified(task, narrow, "f32")
    assert isinstance(exact, Failure) and exact.kind == "wrong_result"
    lost = verified(task, lambda x: narrow(x).at[3, 3].set(0.0), "tf32")
    assert isinstance(lost, Failure) and lost.kind == "wrong_result"
    strict = verified(task, narrow, "f32", "strict")
    assert isinstance(strict, Failure)
    assert "got tf32_blocks(triton_product" in strict.message
    assert "cancels or rounds: allow standard numerics" in strict.message


def test_a_kernel_that_rounds_its_operands_to_bf16_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def narrow(x: jax.Array) -> jax.Array:
        return lax.reduce_precision(x, 8, 7)

    task = task_of(jnp.dot, INTERPRETED)
    found = verified(task, narrow, "tf32")
    assert isinstance(found, Failure) and "tf32 inputs, exact bits demanded" in found.message
    case = References(task.kernel, "tf32").case("tf32")
    assert case.is_exact and np.count_nonzero(case.expected[0].reference.value) > 400
    monkeypatch.setattr(References, "rounds_operands", False)
    assert isinstance(verified(task, narrow, "tf32"), Verdict), "no other set shows it"


def test_a_whole_program_may_round_as_xla_does_and_not_much_more() -> None:
    """Many terms are judged beside the default, few by the bound."""

    def rounded(x: jax.Array, w: jax.Array, bits: int = 10) -> jax.Array:
        return lax.reduce_precision(x, 8, bits) @ lax.reduce_precision(w, 8, bits)

    def loses(x: jax.Array, w: jax.Array) -> jax.Array:
        return rounded(jnp.asarray(x).at[:, 0].set(0.0), w)

    for terms in (40, 4):
        program = load(jnp.dot, X[:, :terms], W[:terms])
        exact, rounds = (
            Judge.of(program, jax.jit(rounded), example_inputs(program), f32_operands=to)
            for to in F32_OPERANDS
        )
        assert exact.judge(rounded, "standard")[0].wrong
        assert exact.wrong_defaults()
        assert not rounds.judge(rounded, "standard")[0].wrong
        assert not rounds.wrong_defaults()
        assert rounds.judge(loses, "standard")[0].wrong
        assert rounds.judge(partial(rounded, bits=4), "standard")[0].wrong


def test_what_a_program_leaves_to_the_device_is_in_its_compute() -> None:
    left = task_of(jnp.dot, INTERPRETED).compute
    asked = task_of(partial(jnp.dot, precision=HIGHEST), INTERPRETED)
    assert (left.leaves_precision, asked.compute.leaves_precision) == (True, False)
    names = {name for op in graph_of_kernel(asked.kernel).ops for name, _ in op.attributes}
    assert "precision_config" in names


def test_a_set_of_which_no_result_is_finite_is_left_out() -> None:
    graph = graph_of(lambda a, b: jnp.exp(jnp.log(a) @ jnp.sqrt(b)), [abs(X) + 1, abs(W) + 1])
    references = References(Kernel(""), "tf32")
    references.graph = graph
    with pytest.raises(UnsupportedKernel, match="with tf32 inputs of every size"):
        references.case("tf32")
    assert references.rounds_operands and not references.compares_wide_operands


def test_large_operands_of_wide_integers_take_the_memory_of_a_period() -> None:
    graph, period = graph_of(jnp.dot, [X, W]), 4096
    large = replace(graph, types=tuple(replace(t, shape=(512, 64)) for t in graph.types))
    for values in draw(large, "tf32", np.random.default_rng(0), period=period):
        rows = values.reshape(-1, period)
        assert not values.flags.writeable and (rows == rows[0]).all() and rows.any()

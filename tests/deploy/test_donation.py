"""Arguments that are given away: results lie in their memory, and comparisons keep their own."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlotune
from hlotune.deploy import jit
from hlotune.deploy.apply import TunedFunction, apply
from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.deploy.bench import bench
from hlotune.deploy.replacement import built_here
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.verify import verify
from tests.support.applied import DIRECT, final, first_sites, normal, recorded
from tests.support.pages import flags_of

P, M, G = normal(40, 33), normal(40, 33), normal(40, 33)


def step(p: Any, m: Any, g: Any, rate: float = 0.1) -> Any:
    """Momentum: the sum of the gradients, and a step along it."""
    m = 0.9 * m + g
    return p - rate * m, m


GIVEN = jax.jit(step, donate_argnums=(0, 1))


def tuned(path: Path, function: Any = GIVEN) -> TunedFunction:
    program = load(function, P, M, G)
    sites = first_sites(program)
    database = recorded(path / "tuning.db", {sites["elementwise0"]: final(DIRECT)})
    return apply(program, database=database)


def arrays() -> list[jax.Array]:
    return [jnp.array(x) for x in (P, M, G)]


def held(function: Any, *, by_name: bool = False) -> tuple[bool, ...]:
    """Which arguments of a call are gone behind it; its results are checked."""
    given = arrays()
    got = function(p=given[0], m=given[1], g=given[2]) if by_name else function(*given)
    for x, wanted in zip(jax.tree.leaves(got), step(P, M, G), strict=True):
        np.testing.assert_allclose(x, wanted, rtol=1e-6, atol=1e-6)
    return tuple(x.is_deleted() for x in given)


def test_what_a_jitted_function_donates_is_donated_by_its_program(tmp_path: Path) -> None:
    program = load(GIVEN, P, M, G)
    assert program.donated == (0, 1)
    assert load(step, P, M, G).donated == ()
    assert load(hlotune.jit(step, donate_argnames="g"), P, M, G).donated == (2,)
    path = tmp_path / "step.mlir"
    path.write_text(GIVEN.lower(P, M, G).as_text())
    assert load(path).donated == (0, 1)
    hlo = tmp_path / "step.hlo"
    computation: Any = GIVEN.lower(P, M, G).compiler_ir("hlo")
    hlo.write_text(computation.as_hlo_text())
    assert load(hlo).donated == (0, 1)


def test_a_donated_buffer_is_gone_for_the_caller_as_with_jax(tmp_path: Path) -> None:
    gone = held(GIVEN)
    assert gone == (True, True, False)
    fast = tuned(tmp_path)
    assert held(jitted(load(GIVEN, P, M, G))) == held(fast) == held(fast, by_name=True) == gone
    save_artifact(fast, tmp_path / "a.hlotune")
    assert held(load_artifact(tmp_path / "a.hlotune")) == gone
    assert held(tuned(tmp_path, step)) == (False, False, False)


@pytest.mark.parametrize("given", [{"donate_argnums": (0, -2)}, {"donate_argnames": ("p", "m")}])
def test_jit_donates_as_jax_does(tmp_path: Path, given: dict[str, Any]) -> None:
    tuned(tmp_path)
    fast = hlotune.jit(step, database=tmp_path / "tuning.db", **given)
    plain = jax.jit(step, **given)
    assert fast.explain(*arrays())[0].status == "tuned"
    assert held(fast) == held(plain)
    assert sum(held(fast)) == 2
    assert held(fast, by_name=True) == held(plain, by_name=True)


def test_calls_that_donate_are_left_to_the_cache_of_jax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_up(*_: Any) -> Any:
        raise AssertionError("expected no look-up for arguments of the same kind")

    tuned(tmp_path)
    fast = hlotune.jit(step, database=tmp_path / "tuning.db", donate_argnums=(0, 1))
    held(fast)
    monkeypatch.setattr(jit.Jitted, "_tuned", looked_up)
    p, m, g = arrays()
    before = [x.unsafe_buffer_pointer() for x in (p, m)]
    after = [x.unsafe_buffer_pointer() for x in fast(p, m, g)]
    assert after == before
    assert held(fast) == (True, True, False)


def test_results_of_kernels_lie_in_the_memory_of_donated_arguments(tmp_path: Path) -> None:
    fast = tuned(tmp_path)
    p, m, g = arrays()
    before = [x.unsafe_buffer_pointer() for x in (p, m)]
    after = [x.unsafe_buffer_pointer() for x in fast(p, m, g)]
    assert after == before
    text = fast.lower(P, M, G).compile().as_text() or ""
    assert "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}" in text
    assert "copy(" not in text


def trained(p: Any, m: Any, x: Any, y: Any) -> Any:
    """The same step, of the gradient of a product's weights."""
    return step(p, m, jax.vjp(lambda p: x @ p, p)[1](y)[0])


def test_the_step_behind_a_gradient_is_written_over_the_weights_it_moves(tmp_path: Path) -> None:
    inputs = P, M, normal(64, 40), normal(64, 33)
    program = load(jax.jit(trained, donate_argnums=(0, 1)), *inputs)
    database = recorded(tmp_path / "tuning.db", {first_sites(program)["dot0"]: final(DIRECT)})
    fast, given = apply(program, database=database), [jnp.array(x) for x in inputs]
    before = [x.unsafe_buffer_pointer() for x in given[:2]]
    got = fast(*given)
    assert [x.unsafe_buffer_pointer() for x in got] == before
    for x, wanted in zip(got, trained(*inputs), strict=True):
        np.testing.assert_allclose(x, wanted, rtol=1e-5, atol=1e-5)
    assert "copy(" not in (fast.lower(*inputs).compile().as_text() or "")


def both_ways(p: Any, m: Any, x: Any, y: Any) -> Any:
    """A layer's step, and what goes on to the layer before it, which reads the weights, too."""
    off = x @ p - y
    return *step(p, m, x.T @ off), off @ p.T


def test_weights_are_written_over_behind_all_kernels_that_read_them(tmp_path: Path) -> None:
    inputs = P, M, normal(64, 40), normal(64, 33)
    program = load(jax.jit(both_ways, donate_argnums=(0, 1)), *inputs)
    sites = first_sites(program)
    ours = {sites[name]: final(DIRECT) for name in ("dot0", "dot1", "dot2")}
    fast = apply(program, database=recorded(tmp_path / "tuning.db", ours))
    save_artifact(fast, tmp_path / "a.hlotune")
    for function in (fast, load_artifact(tmp_path / "a.hlotune")):
        given = [jnp.array(x) for x in inputs]
        before = [x.unsafe_buffer_pointer() for x in given[:2]]
        got = function(*given)
        assert [x.unsafe_buffer_pointer() for x in got[:2]] == before
        for x, wanted in zip(got, both_ways(*inputs), strict=True):
            np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-4)
    text = fast.lower(*inputs).compile().as_text() or ""
    assert "output_to_operand_aliasing" in text
    assert "copy(" not in text


def test_the_comparison_of_the_whole_program_uses_no_deleted_buffer(tmp_path: Path) -> None:
    fast = tuned(tmp_path)
    result = bench(fast.program, fast, pairs=6, limit_s=2.0)
    assert all(a.wrong is None and a.is_checked for a in result.accuracy)
    assert all(not isinstance(x, jax.Array) for x in (P, M, G))


def crossed(p: Any, m: Any, g: Any) -> Any:
    """Every result reads what another one is written over, or elsewhere than it is written."""
    return p[::-1] + g, m * 2 + p, g - p


def test_a_kernel_that_reads_again_what_it_wrote_is_not_run_in_place() -> None:
    site = first_sites(load(crossed, P, M, G))["elementwise0"]
    built = built_here(site.kernel, DIRECT, host_target())
    names = {tuple(t) for t in built.in_place}
    graph = load(crossed, P, M, G).graph
    p, m, g = (site.arguments.index(a) for a in graph.arguments)
    first, second, third = (site.results.index(r) for r in graph.results)
    assert [second, first, third] == [0, 1, 2]  # the order in which they are computed
    assert not {(first, p), (second, p), (third, p)} & names  # it is read backwards
    assert (second, g) not in names  # the results behind it read it
    assert names == {(second, m), (first, m), (first, g), (third, m), (third, g)}


def test_a_kernel_that_keeps_no_order_of_reading_is_caught_by_verification() -> None:
    site = first_sites(load(crossed, P, M, G))["elementwise0"]
    built = built_here(site.kernel, DIRECT, host_target())
    graph = load(crossed, P, M, G).graph
    wrong = (site.results.index(graph.results[0]), site.arguments.index(graph.arguments[0]))
    assert not isinstance(verify(site.kernel, built, thorough=True), Failure)
    failure = verify(site.kernel, replace(built, in_place=(wrong,)), thorough=True)
    assert isinstance(failure, Failure)
    assert "an element is read after it was overwritten" in failure.message


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such pages")
def test_results_above_32_mib_are_asked_for_in_large_pages(tmp_path: Path) -> None:
    x = jnp.zeros((9 << 20,), jnp.float32)
    program = load(lambda x: x + 1, x)
    database = recorded(tmp_path / "a.db", {first_sites(program)["elementwise0"]: final(DIRECT)})
    got = apply(program, database=database)(x).block_until_ready()
    assert " hg" in flags_of(got.unsafe_buffer_pointer() + (4 << 20))
    assert float(got[-1]) == 1.0

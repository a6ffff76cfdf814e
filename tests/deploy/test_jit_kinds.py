"""Calls of `hlotune.jit` of one kind and of several: what is traced and looked up again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlotune
from hlotune.deploy import jit
from hlotune.hlo.frontends.program import load
from tests.support.applied import DIRECT, final, first_sites, recorded
from tests.support.dense import W, X, close, dense, recorded_dense

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_dense(tmp_path_factory.mktemp("jit"))


def counting(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Notes each trace of a function."""
    traces: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        traces.append(1)
        return function(*arguments, **named)

    return counted, traces


def test_equal_types_are_traced_once_and_new_ones_again(database: Path) -> None:
    counted, traces = counting(lambda x, w: dense(x, w))
    fast = hlotune.jit(counted, database=database)
    fast(X, W)
    seen = len(traces)
    fast(2 * X, W)
    assert len(traces) == seen
    fast(X[:4], W)
    assert len(traces) > seen


def clipped(x: Any, relu: bool, w: Any) -> Any:
    assert isinstance(relu, bool)
    return dense(x, w, relu=relu)


@pytest.mark.parametrize(
    "static", [{"static_argnums": 1}, {"static_argnames": "relu"}, {"static_argnums": (-2,)}]
)
def test_static_arguments_are_values_of_the_program(database: Path, static: Any) -> None:
    fast = hlotune.jit(clipped, database=database, **static)
    for relu in (True, False):
        close(fast(X, relu, W), dense(X, W, relu=relu))
        assert fast.explain(X, relu, W)[0].status == "tuned"


def test_static_arguments_may_come_by_name(database: Path) -> None:
    fast = hlotune.jit(clipped, database=database, static_argnames=("relu",))
    close(fast(X, relu=True, w=W), dense(X, W, relu=True))
    assert fast.explain(X, relu=True, w=W)[0].status == "tuned"


def cast(x: Any, w: Any, n: Any) -> Any:
    """Whole numbers and others make other programs."""
    y = x @ w
    return y.astype(jnp.int32) if isinstance(n, int) else y


def test_static_values_of_other_types_are_other_values(database: Path) -> None:
    fast = hlotune.jit(cast, database=database, static_argnums=2)
    assert fast(X, W, 2).dtype == jnp.int32
    assert fast(X, W, 2.0).dtype == jnp.float32


def keyed(x: Any, w: Any, key: Any) -> Any:
    """Gives another key too."""
    here, later = jax.random.split(key)
    return x @ w + jax.random.normal(here, (8, 32)), later


@pytest.mark.parametrize("donated", [(), 2])
def test_typed_random_keys_are_taken_and_given(tmp_path: Path, donated: Any) -> None:
    site = first_sites(load(keyed, X, W, jax.random.key(3)))["dot0"]
    path = recorded(tmp_path / "keys.db", {site: final(DIRECT)})
    fast = hlotune.jit(keyed, database=path, donate_argnums=donated)
    assert fast.explain(X, W, jax.random.key(3))[0].status == "tuned"
    wanted, later = jax.jit(keyed)(X, W, jax.random.key(3))
    for _ in range(2):
        got, key = fast(X, W, jax.random.key(3))
        close(got, wanted)
        assert key.dtype == later.dtype
        np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(later))
    wanted, _ = jax.jit(keyed)(X, W, jax.random.key(3, impl="rbg"))
    close(fast(X, W, jax.random.key(3, impl="rbg"))[0], wanted)


def test_calls_with_arguments_of_one_kind_are_left_to_the_cache_of_jax(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_up(*_: Any) -> Any:
        raise AssertionError("expected no look-up for arguments of the same kind")

    fast = hlotune.jit(dense, database=database)
    fast(X, W)
    with monkeypatch.context() as patched:
        patched.setattr(jit.Jitted, "_tuned", looked_up)
        close(fast(2 * X, W), dense(2 * X, W))
    close(fast(X[:4], W), dense(X[:4], W))
    close(fast(X, W), dense(X, W))
    assert fast.explain(X, W)[0].status == "tuned"


@pytest.mark.parametrize("static", [None, "relu"])
def test_calls_that_xla_runs_are_left_to_the_cache_of_jax_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, static: Any
) -> None:
    def looked_up(*_: Any) -> Any:
        raise AssertionError("expected no look-up for arguments of the same kind")

    counted, traces = counting(dense)
    empty = recorded(tmp_path / "empty.db", {})
    fast = hlotune.jit(counted, database=empty, static_argnames=static)
    close(fast(X, W), dense(X, W))
    with monkeypatch.context() as patched:
        patched.setattr(jit.Jitted, "_tuned", looked_up)
        close(fast(2 * X, W), dense(2 * X, W))
    seen = len(traces)
    if static:
        close(fast(X, W, relu=True), dense(X, W, relu=True))
    close(fast(X[:4], W), dense(X[:4], W))
    assert len(traces) > seen
    with monkeypatch.context() as patched:
        patched.setattr(jit.Jitted, "_tuned", looked_up)
        close(fast(X, W), dense(X, W))
        close(fast(X[:4], W), dense(X[:4], W))


def test_a_kind_of_calls_that_xla_runs_is_compiled_once_beside_others(database: Path) -> None:
    counted, traces = counting(lambda x, w: dense(x, w))
    fast = hlotune.jit(counted, database=database)
    fast(X[:4], W)
    assert fast.explain(X, W)[0].status == "tuned"
    seen = len(traces)
    for _ in range(2):
        close(fast(X[:4], W), dense(X[:4], W))
    assert len(traces) == seen


def test_the_error_of_a_call_of_another_kind_has_none_of_ours_behind_it(tmp_path: Path) -> None:
    def even(x: Any) -> Any:
        if x.shape[0] % 2:
            raise ValueError("expected an even number of rows")
        return x + 1

    fast = hlotune.jit(even, database=recorded(tmp_path / "empty.db", {}))
    fast(X)
    with pytest.raises(ValueError, match="even number of rows") as caught:
        fast(X[:3])
    error: BaseException | None = caught.value
    while error is not None:
        assert not isinstance(error, jit.OtherTypes)
        error = error.__context__


def test_another_setting_of_jax_is_another_kind_of_call(database: Path) -> None:
    counted, traces = counting(lambda x, w: dense(x, w))
    fast = hlotune.jit(counted, database=database)
    fast(X, W)
    seen = len(traces)
    with jax.default_matmul_precision("highest"):
        close(fast(X, W), dense(X, W))
    assert len(traces) > seen


def test_random_numbers_are_those_of_the_setting_that_a_call_is_made_under(tmp_path: Path) -> None:
    key = jax.random.key(3)
    site = first_sites(load(keyed, X, W, key))["dot0"]
    fast = hlotune.jit(keyed, database=recorded(tmp_path / "keys.db", {site: final(DIRECT)}))
    assert fast.explain(X, W, key)[0].status == "tuned"
    for partitionable in (True, False, True):
        with jax.threefry_partitionable(partitionable):
            close(fast(X, W, key)[0], jax.jit(keyed)(X, W, key)[0])


@pytest.mark.parametrize("is_tuned", [True, False])
def test_random_numbers_do_not_depend_on_the_calls_before(tmp_path: Path, is_tuned: bool) -> None:
    """How keys are made by default is no setting under which `jax.jit` traces anew."""

    def noisy(x: Any, w: Any, seed: Any) -> Any:
        return x @ w + jax.random.normal(jax.random.key(seed), (len(x), 32))

    site = first_sites(load(noisy, X, W, 3))["dot0"]
    path = recorded(tmp_path / "keys.db", {site: final(DIRECT)} if is_tuned else {})
    fast, plain = hlotune.jit(noisy, database=path), jax.jit(noisy)
    assert ("tuned" in [e.status for e in fast.explain(X, W, 3)]) == is_tuned
    for rows in (X, X[:4], X):
        for generator in ("threefry2x32", "rbg", "threefry2x32"):
            with jax.default_prng_impl(generator):
                close(fast(rows, W, 3), plain(rows, W, 3))

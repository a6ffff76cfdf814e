"""`hlotune.jit` gives what `jax.jit` gives, by tuned kernels where records say so."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlotune
from hlotune.deploy import explanation, jit
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import DatabaseError, ProgramError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from tests.support.applied import DIRECT, final, first_sites, recorded
from tests.support.dense import W, X, close, dense, recorded_dense

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_dense(tmp_path_factory.mktemp("jit"))


def test_a_recorded_kernel_runs_and_gives_what_jax_gives(database: Path) -> None:
    fast = hlotune.jit(dense, database=database)
    close(fast(X, W), jax.jit(dense)(X, W))
    assert fast.explain(X, W)[0].status == "tuned"
    close(fast(X, w=W, scale=2.0), dense(X, W, scale=2.0))
    assert fast.explain(X, w=W, scale=2.0)[0].status == "tuned"


def test_an_argument_may_be_called_self(database: Path) -> None:
    fast = hlotune.jit(lambda self, w: dense(self, w), database=database)
    close(fast(self=X, w=W), dense(X, W))
    assert fast.explain(self=X, w=W)[0].status == "tuned"


def test_other_transformations_see_the_function_as_jax_does(database: Path) -> None:
    fast, plain = hlotune.jit(dense, database=database), jax.jit(dense)
    fast(X, W)

    def loss(function: Any) -> Any:
        return lambda w: jnp.sum(function(X, w) ** 2)

    close(jax.grad(loss(fast))(W), jax.grad(loss(plain))(W))
    stack = np.stack([X, 2 * X])
    close(jax.vmap(fast, (0, None))(stack, W), jax.vmap(plain, (0, None))(stack, W))
    close(jax.jit(lambda x: fast(x, W))(X), plain(X, W))


def test_what_a_function_closes_over_may_be_in_another_transformation(database: Path) -> None:
    def loss(jit: Any) -> Any:
        return lambda w: (jit(lambda x: x @ w)(X) ** 2).sum()

    ours = partial(hlotune.jit, database=database)
    close(jax.grad(loss(ours))(W), jax.grad(loss(jax.jit))(W))


def test_without_records_it_is_jax_jit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOTUNE_DB", str(tmp_path / "none.db"))
    fast = hlotune.jit(dense)
    np.testing.assert_array_equal(fast(X, W), jax.jit(dense)(X, W))
    assert fast.explain(X, W) == ()
    assert not (tmp_path / "none.db").exists()
    empty = hlotune.jit(dense, database=recorded(tmp_path / "empty.db", {}))
    np.testing.assert_array_equal(empty(X, W), jax.jit(dense)(X, W))
    said = [(e.status, e.reason) for e in empty.explain(X, W)]
    assert ("no record", "never tuned") in said and "tuned" not in dict(said)


def test_new_records_are_seen_once_the_cache_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fast = hlotune.jit(dense, database=path)
    fast(X, W)
    recorded(path, {first_sites(load(dense, X, W))["dot0"]: final(DIRECT)})
    assert fast.explain(X, W) == ()
    fast.clear_cache()
    assert fast.explain(X, W)[0].status == "tuned"


def test_a_database_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("not a database at all\n" * 100)
    with pytest.raises(DatabaseError, match="file of another kind"):
        hlotune.jit(dense, database=tmp_path / "notes.db")(X, W)


def test_settings_that_there_are_not_are_refused_at_once(database: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a setting of numerics among .*, got 'none'"):
        hlotune.jit(dense, database=database, numerics="none")  # type: ignore[arg-type]


def test_errors_are_those_of_jax(database: Path) -> None:
    fast = hlotune.jit(dense, database=database)
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        fast(X, X)
    with pytest.raises(TypeError, match="str"):
        fast("x", W)
    unhashable = hlotune.jit(lambda x, n: x, database=database, static_argnums=1)
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        unhashable(X, [1])
    with pytest.raises(AttributeError, match="no attribute 'lowered'"):
        fast.lowered  # noqa: B018 - the access is the test


def test_a_function_that_calls_python_is_left_to_jax(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[float] = []
    caplog.set_level("INFO", "hlotune.jit")

    def noted(x: Any, w: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        return x @ w

    close(hlotune.jit(noted, database=database)(X, W), X @ W)
    jax.effects_barrier()  # type: ignore[no-untyped-call]
    assert seen == [pytest.approx(float(X[0, 0]))]
    (message,) = caplog.messages
    assert message.startswith("XLA runs noted: ")


def test_it_decorates_functions_and_methods_and_keeps_their_names(database: Path) -> None:
    @hlotune.jit(database=database)  # type: ignore[untyped-decorator]
    def named(x: Any) -> Any:
        """Says what it does."""
        return x @ W

    assert (named.__name__, named.__doc__) == ("named", "Says what it does.")
    close(named(X), X @ W)
    assert "stablehlo.dot_general" in named.lower(X).as_text()

    class Layer:
        @hlotune.jit(database=database, static_argnums=0)  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return x @ W

    close(Layer()(X), X @ W)


def test_where_the_first_device_has_no_kernels_of_ours_it_is_jax_jit(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = SimpleNamespace(platform="gpu", device_kind="Radeon")
    monkeypatch.setattr(jax, "devices", lambda *_: [unknown])
    assert hlotune.jit(dense, database=database).explain(X, W) == ()


def test_on_a_system_without_kernels_of_ours_it_is_jax_jit(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    fast = hlotune.jit(dense, database=database)
    np.testing.assert_array_equal(fast(X, W), jax.jit(dense)(X, W))
    assert fast.explain(X, W) == ()


def test_what_is_refused_when_records_are_applied_is_an_error(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own, which XLA's results would hide."""

    def refusing(*_: Any, **__: Any) -> None:
        raise ProgramError("expected another program")

    monkeypatch.setattr(jit, "applied", refusing)
    with pytest.raises(ProgramError, match="expected another program"):
        hlotune.jit(dense, database=database)(X, W)


def test_results_give_way_to_other_types_where_those_of_jax_do(tmp_path: Path) -> None:
    """As a result of Python's numbers does: a factor of it leaves bf16 as it is."""

    def scaled(x: Any, w: Any, scale: Any) -> Any:
        return x @ w, scale + 1, {"all": jnp.full(3, scale)}

    site = first_sites(load(scaled, X, W, 2.0))["dot0"]
    fast = hlotune.jit(scaled, database=recorded(tmp_path / "weak.db", {site: final(DIRECT)}))
    for scale in (2.0, np.float32(2.0)):
        wanted, got = (jax.tree.leaves(f(X, W, scale)) for f in (jax.jit(scaled), fast))
        assert fast.explain(X, W, scale)[0].status == "tuned"
        assert [x.weak_type for x in got] == [x.weak_type for x in wanted]
        half = jnp.ones(3, jnp.bfloat16)
        assert [(x * half).dtype for x in got[1:]] == [(x * half).dtype for x in wanted[1:]]


def test_other_options_are_those_of_jax(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    usual: dict[str, Any] = {"compiler_options": None, "device": None, "backend": None}
    for options in ({"inline": True, "keep_unused": True}, usual):
        tuned = hlotune.jit(dense, database=database, **options)
        close(tuned(X, W), dense(X, W))
        assert tuned.explain(X, W)[0].status == "tuned"
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert not caplog.messages
    placed = hlotune.jit(dense, database=database, out_shardings=here, backend=None)
    for rows in (X, X[:4]):
        close(placed(rows, W), dense(rows, W))
    assert placed.explain(X, W) == ()
    assert caplog.messages == ["XLA runs dense: tuned programs take no out_shardings"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'out_sharding'"):
        hlotune.jit(dense, database=database, out_sharding=here)


SPREAD = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
import hlotune
from tests.support.dense import W, X, close, dense

mesh = jax.make_mesh((2,), ("rows",))
rows, all = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rows",), ()))
spread = jax.device_put(X, rows), jax.device_put(W, all)
fast = hlotune.jit(dense, database=sys.argv[1])
for arguments in ((X, W), spread, (X, W)):
    got, wanted = fast(*arguments), jax.jit(dense)(*arguments)
    close(got, wanted)
    assert got.sharding == wanted.sharding, got.sharding
    assert got.committed == wanted.committed
assert fast.explain(X, W)[0].status == "tuned"
assert fast.explain(*spread) == ()
square, wide = W[:, :16], jax.device_put(W, all)
for jit in (jax.jit(dense), fast):
    close(jit(jit(X, square), wide), dense(dense(X, square), W))
    close(jnp.add(jit(X, W), jax.device_put(jit(X, W), rows)), 2 * dense(X, W))
there = jax.device_put(X, jax.devices()[1])
for jit in (jax.jit(dense), fast):
    assert jit(there, W).committed and jit(there, W).devices() == there.devices()
"""


def test_arrays_on_several_devices_are_computed_where_jax_has_it(database: Path) -> None:
    subprocess.run([sys.executable, "-c", SPREAD, str(database)], check=True)


def test_kernels_that_are_too_small_are_said_to_be_left_as_they_are(tmp_path: Path) -> None:
    def both(x: Any, w: Any) -> Any:
        return x @ w, jax.nn.softmax(x)

    site = first_sites(load(both, X, W))["dot0"]
    fast = hlotune.jit(both, database=recorded(tmp_path / "one.db", {site: final(DIRECT)}))
    said = {e.site.label: (e.status, e.reason) for e in fast.explain(X, W)}
    ((small, (status, reason)),) = [x for x in said.items() if "softmax" in x[0]]
    assert (small, status) == ("softmax 8x16", "too small")
    assert re.fullmatch(r"left as it is: expected a kernel of at least 3 us, got one .*", reason)


@pytest.mark.parametrize("schedule", [DIRECT, DEFAULT], ids=["tuned", "left to XLA"])
def test_texts_of_kernels_without_a_record_are_read_for_explanations_alone(
    schedule: Schedule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(x: Any, w: Any) -> Any:
        return x @ w, jax.nn.softmax(x)

    read = list[str]()
    monkeypatch.setattr(explanation, "tiny", lambda site, _: read.append(site.label))
    site = first_sites(load(both, X, W))["dot0"]
    fast = hlotune.jit(both, database=recorded(tmp_path / "one.db", {site: final(schedule)}))
    fast(X, W)
    assert not read
    assert len(fast.explain(X, W)) > 1
    assert "softmax 8x16" in read

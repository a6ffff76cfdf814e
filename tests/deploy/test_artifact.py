"""A tuned program as a file: it runs where it may, and is refused where it may not."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlotune
from hlotune.deploy.apply import TunedFunction, apply
from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.deploy.freeze import freeze
from hlotune.deploy.key_fields import fields_of, keys_of
from hlotune.hlo.calling.keys import Keys
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.stacks import Stack
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Pack
from tests.support.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded
from tests.support.tree import ROOT

pytestmark = pytest.mark.smoke

X = normal(8, 16)
PACKED = Schedule("direct", (Pack("contract", "a1", "", "load", ((1, 8), (0, 1), (1, 1)), 8),))


def tuned(program: Program, folder: Path, schedule: Schedule = DIRECT) -> TunedFunction:
    records = {first_sites(program)["dot0"]: final(schedule)}
    return apply(program, database=recorded(folder / "a.db", records))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the two-layer network, its first layer replaced."""
    folder = tmp_path_factory.mktemp("artifact")
    path = folder / "mlp.hlotune"
    save_artifact(tuned(load(mlp, PARAMETERS, X), folder), path)
    return path


CLIENT = """
import sys, numpy as np, hlotune
values = dict(np.load(sys.argv[2])); x = values.pop("x")
run = hlotune.load_artifact(sys.argv[1])
np.save(sys.argv[3], run({"in": values["in"], "out": values["out"], "bias": values["bias"]}, x)["logits"])
"""  # noqa: E501


def test_only_what_was_applied_can_be_saved(tmp_path: Path) -> None:
    program = load(mlp, PARAMETERS, X)
    with pytest.raises(ProgramError, match=r"expected a tuned function, got Program; .*apply"):
        save_artifact(program, tmp_path / "a.hlotune")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_another_process_runs_it_without_database_or_source(file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, **PARAMETERS)
    paths = [str(p) for p in (file, tmp_path / "in.npz", tmp_path / "out.npy")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    client = [sys.executable, "-c", CLIENT, *paths]
    subprocess.run(client, cwd=tmp_path, env=environment, check=True)
    want = mlp(PARAMETERS, X)["logits"]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), want, rtol=1e-5, atol=1e-5)


def test_what_is_applied_and_what_is_loaded_can_be_jitted_again(file: Path, tmp_path: Path) -> None:
    want = mlp(PARAMETERS, X)["logits"]
    for fast in (tuned(load(mlp, PARAMETERS, X), tmp_path), load_artifact(file)):
        got = jax.jit(fast)(PARAMETERS, X)["logits"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_applied_and_what_is_loaded_takes_its_arguments_by_name(
    file: Path, tmp_path: Path
) -> None:
    want = mlp(PARAMETERS, X)["logits"]
    for fast in (tuned(load(mlp, PARAMETERS, X), tmp_path), load_artifact(file)):
        got = fast(x=X, parameters=PARAMETERS)["logits"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_argument_may_be_called_self(tmp_path: Path) -> None:
    fast = apply(load(lambda self: self + 1, X), database=recorded(tmp_path / "a.db", {}))
    save_artifact(fast, path := tmp_path / "a.hlotune")
    for run in (fast, load_artifact(path)):
        np.testing.assert_array_equal(run(self=X), X + 1)


def test_packed_constants_are_in_it(tmp_path: Path) -> None:
    weights = normal(16, 32)
    program = load(freeze(lambda w, x: jax.nn.relu(x @ w), weights), X)
    path = tmp_path / "a.hlotune"
    size = save_artifact(tuned(program, tmp_path, PACKED), path)
    read = load_artifact(path)
    assert size == path.stat().st_size > weights.nbytes
    assert read.packed_bytes == weights.nbytes
    np.testing.assert_allclose(read(X), np.maximum(X @ weights, 0), rtol=1e-5, atol=1e-5)


def scanned(x: Any) -> Any:
    """Layers with one weight each, by a loop: packed are all of them."""

    def layer(x: Any, parameters: Any) -> Any:
        weights, bias = parameters
        return jnp.tanh(x @ weights + bias), x.sum()

    return lax.scan(layer, x, (jnp.asarray(LAYERS), jnp.asarray(LAYERS[:, 0])), reverse=True)


LAYERS = np.stack([normal(16, 16) / 4 for _ in range(5)])


def test_layers_of_a_loop_are_packed_one_by_one(tmp_path: Path) -> None:
    program = load(scanned, X)
    site = first_sites(program)["dot0"]
    assert site.weight == 5
    assert [type(constant) for _, constant in site.constants] == [Stack, Stack]
    function = tuned(program, tmp_path, PACKED)
    assert len(function.replacements) == 1
    assert function.packed_bytes == LAYERS.nbytes
    path = tmp_path / "a.hlotune"
    save_artifact(function, path)
    for run in (function, load_artifact(path)):
        close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        jax.tree.map(close, run(X), jax.jit(scanned)(X))


def test_typed_random_keys_are_taken_and_given_as_the_program_does(tmp_path: Path) -> None:
    def keyed(x: Any, key: Any) -> Any:
        here, later = jax.random.split(key)
        return x @ jax.random.normal(here, (16, 32)), {"next": later}

    key, path = jax.random.key(3), tmp_path / "keyed.hlotune"
    save_artifact(tuned(load(keyed, X, key), tmp_path), path)
    run = load_artifact(path)
    wanted, later = keyed(X, key)
    for given in (key, jax.random.key_data(key)):
        got, found = run(X, given)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        assert found["next"].dtype == key.dtype
        numbers = (jax.random.key_data(x["next"]).tolist() for x in (found, later))
        assert next(numbers) == next(numbers)
    with pytest.raises(TypeError, match="expected a random key of the generator threefry2x32, got"):
        run(X, jax.random.key(3, impl="rbg"))


def test_results_give_way_to_other_types_as_those_of_the_program_do(tmp_path: Path) -> None:
    program, path = load(lambda x, scale: (x * scale, scale + 1), X, 2.0), tmp_path / "weak.hlotune"
    save_artifact(apply(program, database=recorded(tmp_path / "empty.db", {})), path)
    half = jnp.ones(1, jnp.bfloat16)
    assert [(y * half).dtype for y in load_artifact(path)(X, 2.0)] == [jnp.float32, jnp.bfloat16]


def test_keys_of_a_generator_without_a_name_are_written_as_their_numbers() -> None:
    keys = Keys(arguments={0: "rbg", 1: object()}, results={2: object()})
    assert fields_of(keys) == {"arguments": {"0": "rbg"}, "results": {}}
    assert keys_of(fields_of(keys)) == Keys(arguments={0: "rbg"}, results={})


def test_equal_programs_make_equal_files(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.hlotune"
    save_artifact(tuned(load(mlp, PARAMETERS, X), tmp_path), again)
    assert again.read_bytes() == file.read_bytes()


def test_a_program_of_flat_arrays_stays_one(tmp_path: Path) -> None:
    text = jax.jit(lambda x, w: x @ w).lower(X, PARAMETERS["in"]).as_text()
    (tmp_path / "dot.mlir").write_text(text)
    path = tmp_path / "dot.hlotune"
    save_artifact(tuned(load(tmp_path / "dot.mlir"), tmp_path), path)
    (got,) = load_artifact(path)(X, PARAMETERS["in"])
    np.testing.assert_allclose(got, X @ PARAMETERS["in"], rtol=1e-5, atol=1e-5)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_containers_that_a_file_cannot_name_are_refused(tmp_path: Path) -> None:
    program = load(lambda pair: pair.left @ pair.right, Pair(X, PARAMETERS["in"]))
    with pytest.raises(ProgramError, match="expected arguments in tuples, lists and dicts"):
        save_artifact(tuned(program, tmp_path), tmp_path / "a.hlotune")


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ProgramError, match="expected to write the tuned program"):
        save_artifact(tuned(load(mlp, PARAMETERS, X), tmp_path), tmp_path / "taken" / "a.hlotune")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    one = tuned(load(mlp, PARAMETERS, X), tmp_path)
    with pytest.raises(ProgramError, match=r"expected to write .* got No such file"):
        save_artifact(one, tmp_path / "none" / "a.hlotune")


def test_it_says_what_it_is(file: Path) -> None:
    read = hlotune.load_artifact(file)
    assert (read.name, read.numerics, len(read.kernels)) == ("mlp", "standard", 1)
    assert len(read.target) == 16


def test_containers_that_stand_too_deep_are_refused(tmp_path: Path) -> None:
    deep: Any = X
    for _ in range(101):
        deep = [deep]

    def function(deep: Any) -> Any:
        return jax.tree.leaves(deep)[0] @ PARAMETERS["in"]

    with pytest.raises(ProgramError, match="at most 100 inside one another"):
        save_artifact(tuned(load(function, deep), tmp_path), tmp_path / "a.hlotune")

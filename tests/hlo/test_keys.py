"""Programs of typed random keys."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlotune
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from tests.support.applied import normal, recorded

X = normal(4, 8)


def dropped(x: Any, key: Any) -> Any:
    """Half of the values, and a key for the next call."""
    here, later = jax.random.split(key)
    return jnp.where(jax.random.bernoulli(here, 0.5, x.shape), x, 0), later


def test_a_program_has_the_numbers_of_typed_keys() -> None:
    program = load(dropped, X, jax.random.key(1))
    kinds = [program.graph.types[a] for a in program.graph.arguments]
    assert [(k.dtype, k.shape) for k in kinds] == [("f32", (4, 8)), ("ui32", (2,))]
    assert dict(program.keys.arguments) == {1: "threefry2x32"}
    assert dict(program.keys.results) == {1: "threefry2x32"}


@pytest.mark.parametrize("of_types", [False, True])
def test_a_call_takes_keys_or_their_numbers_and_gives_keys(of_types: bool) -> None:
    key = jax.random.key(1)
    kind = jax.ShapeDtypeStruct(key.shape, key.dtype)  # type: ignore[no-untyped-call]
    call = jitted(load(dropped, X, kind if of_types else key))
    wanted, later = dropped(X, key)
    for given in (key, jax.random.key_data(key)):
        got, next_key = call(X, given)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(jax.random.key_data(next_key), jax.random.key_data(later))


def test_a_key_that_a_program_makes_is_given_as_one() -> None:
    def made(seed: Any) -> Any:
        return jax.random.key(seed), jax.random.split(jax.random.key(seed), 3)

    one, three = jitted(load(made, np.int32(5)))(np.int32(5))
    np.testing.assert_array_equal(jax.random.key_data(one), jax.random.key_data(made(5)[0]))
    assert (three.shape, three.dtype) == ((3,), jax.random.key(5).dtype)


def test_keys_of_another_generator_are_refused() -> None:
    call = jitted(load(dropped, X, jax.random.key(1)))
    with pytest.raises(TypeError, match="expected a random key of the generator threefry2x32, got"):
        call(X, jax.random.key(1, impl="rbg"))
    plain = jitted(load(lambda x: x + 1, np.zeros(2, np.uint32)))
    with pytest.raises(TypeError, match="expected an array of numbers, got a random key of the"):
        plain(jax.random.key(1))


def test_a_tuned_program_gives_keys(tmp_path: Any) -> None:
    program = load(dropped, X, jax.random.key(1))
    tuned = hlotune.apply(program, database=recorded(tmp_path / "empty.db", {}))
    assert tuned(X, jax.random.key(1))[1].dtype == jax.random.key(1).dtype


def test_a_key_that_is_split_often_is_cut_in_no_time() -> None:
    """Each round of the generator reads the numbers of the one before it twice."""

    def often(x: Any, key: Any) -> Any:
        for _ in range(3):
            x, key = dropped(x, key)
        return x

    assert sites(load(often, normal(256, 512), jax.random.key(1)))

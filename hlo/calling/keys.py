"""Typed random keys (`jax.random.key`): a program takes and gives the numbers that they hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

Generators = Mapping[int, Any]
"""By the position of a leaf that is a typed key: its generator, as `jax.random.key_impl` names it.
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """Which leaves of a function's arguments and results are typed keys."""

    arguments: Generators = field(default_factory=dict)
    results: Generators = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arguments or self.results)


NO_KEYS = Keys()


def is_key(leaf: Any) -> bool:
    """Whether an array, or a type of arrays, is of typed random keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def generators_of(leaves: Sequence[Any]) -> Generators:
    """The generators of those leaves, arrays or types, that are typed keys."""
    places = [k for k, leaf in enumerate(leaves) if is_key(leaf)]
    if not places:
        return {}
    found: dict[int, Any] = {}

    def note(*keys: jax.Array) -> None:
        found.update(zip(places, map(jax.random.key_impl, keys), strict=True))

    jax.eval_shape(note, *(_typed(leaves[k]) for k in places))
    return found


def numbers_of(leaf: Any) -> Any:
    """The u32 numbers of a typed key, whose last dimension is one more; others stay as they are."""
    if not is_key(leaf):
        return leaf
    if isinstance(leaf, jax.Array):
        return jax.random.key_data(leaf)
    return jax.eval_shape(jax.random.key_data, _typed(leaf))


def with_keys(leaves: Sequence[Any], generators: Generators) -> list[Any]:
    """The leaves, with typed keys of these numbers at the places of `generators`."""
    return [
        jax.random.wrap_key_data(x, impl=generators[k]) if k in generators else x
        for k, x in enumerate(leaves)
    ]


def of_numbers(
    function: Callable[..., Any], arguments: tuple[Any, ...], keys: Keys
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function that takes and gives numbers in place of typed keys, and its arguments."""
    leaves, tree = jax.tree.flatten(arguments)

    def numeric(*given: Any) -> Any:
        typed = with_keys(jax.tree.leaves(given), keys.arguments)
        return jax.tree.map(numbers_of, function(*jax.tree.unflatten(tree, typed)))

    return numeric, jax.tree.unflatten(tree, map(numbers_of, leaves))


def numbers_given(leaf: Any, generator: Any) -> Any:
    """What a program gets of one argument of a call, which may be a typed key or its numbers.

    Raises TypeError for a key of another generator than the program was loaded with, and where it
    was loaded with an array of numbers.
    """
    if not is_key(leaf):
        return leaf
    if (got := jax.random.key_impl(leaf)) != generator:
        if generator is None:
            raise TypeError(
                f"expected an array of numbers, got a random key of the generator {got}; give "
                "jax.random.key_data of it"
            )
        raise TypeError(
            f"expected a random key of the generator {generator}, got one of {got}; give such a "
            "key, or load the program with one of that generator"
        )
    return jax.random.key_data(leaf)


def _typed(leaf: Any) -> Any:
    """The type of an array, or of what has a shape and an element type."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # type: ignore[no-untyped-call]

"""What `hlotune.jit` tells calls apart by: their static and their other arguments, and of these the
structure, the types and where they lie."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from hlotune.hlo.mlir.versions import tracing_settings

Numbers = int | Sequence[int] | None
Names = str | Iterable[str] | None
Key = tuple[Any, ...]
"""Static values, structure and types of the others, and the settings of JAX."""


@dataclass(frozen=True)
class Chosen:
    """Some arguments of a function, by position and by name."""

    positions: frozenset[int]
    names: frozenset[str]

    def among(self, count: int) -> frozenset[int]:
        """Positions among so many arguments; negative ones count from the end."""
        return frozenset(p % count for p in self.positions if -count <= p < count)


@dataclass(frozen=True)
class Arrays:
    """Arguments that the program takes, by position and by name."""

    positional: dict[int, Any]
    named: dict[str, Any]


@dataclass(frozen=True)
class Split:
    """The arguments of one call: static ones, and those that the program takes."""

    static: tuple[tuple[int | str, Any], ...]
    kept: Arrays
    donated: Arrays

    @property
    def arrays(self) -> tuple[dict[int, Any], dict[str, Any], dict[int, Any], dict[str, Any]]:
        """What the program takes: of those that are kept, then of those that are donated."""
        kept, donated = self.kept, self.donated
        return kept.positional, kept.named, donated.positional, donated.named

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of `arrays`; nothing but static values stays alive in it."""
        static = self.static

        def call(
            positional: dict[int, Any], named: dict[str, Any],
            given: dict[int, Any], given_named: dict[str, Any],
        ) -> Any:  # fmt: skip
            values = positional | given | {p: v for p, v in static if isinstance(p, int)}
            names = {p: v for p, v in static if isinstance(p, str)}
            return function(*(values[p] for p in sorted(values)), **names, **named, **given_named)

        return jax.jit(call, donate_argnums=(2, 3))


@functools.cache
def has_several_devices() -> bool:
    return jax.device_count() > 1


def is_spread(arguments: Any) -> bool:
    """Whether any array among them lies on several devices, which JAX has compute together."""
    return any(
        len(x.sharding.device_set) > 1
        for x in jax.tree.leaves(arguments)
        if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    )


def key_of(split: Split) -> Key:
    """Raises TypeError for what is no array."""
    leaves, tree = jax.tree.flatten(split.arrays)
    types = tuple(_type(x) for x in leaves)
    return (_typed(split.static), tree, types, tracing_settings())


def _typed(static: Sequence[tuple[int | str, Any]]) -> tuple[Any, ...]:
    """Equal values of different types are different here: 2, 2.0 and True make other programs."""
    return tuple((place, type(value), value) for place, value in static)


def _type(leaf: Any) -> tuple[tuple[int, ...], Any, bool]:
    """Shape, element type, and whether that gives way.  Raises TypeError for what is no array."""
    kind = jax.typeof(leaf)
    return kind.shape, kind.dtype, getattr(kind, "weak_type", False)


def types_of(key: Key) -> Any:
    """The arrays of a call as types."""
    types = [
        jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)  # type: ignore[no-untyped-call]
        for shape, dtype, weak in key[2]
    ]
    return jax.tree.unflatten(key[1], types)


def chosen(function: Callable[..., Any], numbers: Numbers, names: Names) -> Chosen:
    """Arguments by positions and names; one gives the other, as `jax.jit` has it."""
    positions = {numbers} if isinstance(numbers, int) else set(numbers or ())
    called = {names} if isinstance(names, str) else set(names or ())
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Chosen(frozenset(positions), frozenset(called))
    if all(p.kind is not inspect.Parameter.VAR_POSITIONAL for p in parameters):
        count = sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in parameters)
        positions = {p % count if -count <= p < 0 else p for p in positions}
    plain = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if names is None:
        called |= {plain[p] for p in positions if -len(plain) <= p < len(plain)}
    if numbers is None:
        positions |= {plain.index(n) for n in called if n in plain}
    return Chosen(frozenset(positions), frozenset(called))

"""Typed random keys in the manifest of a tuned program's file: which leaves are keys, by generator.

Only generators that JAX has by name are written.  Of another one, the file takes and gives the
numbers of keys (`jax.random.key_data`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from hlotune.deploy.archive import AGAIN
from hlotune.hlo.calling.keys import Generators, Keys
from hlotune.hlo.frontends.program import shape_of
from hlotune.hlo.graph import TensorType
from hlotune.schedules.errors import ProgramError

SIDES = ("arguments", "results")
NO_FIELDS: Mapping[str, Any] = {side: {} for side in SIDES}


def fields_of(keys: Keys) -> dict[str, dict[str, str]]:
    """By `arguments` and `results`: the generator by the position of a leaf, which JSON has as a
    text."""
    return {side: _named(getattr(keys, side)) for side in SIDES}


def keys_of(fields: Mapping[str, Mapping[str, str]]) -> Keys:
    arguments, results = ({int(k): name for k, name in fields[side].items()} for side in SIDES)
    return Keys(arguments, results)


def are_fields(value: Any) -> bool:
    """Whether a value has generators by positions, of arguments and of results."""
    return (
        isinstance(value, dict)
        and value.keys() == set(SIDES)
        and all(isinstance(side, dict) for side in value.values())
        and all(
            k.isdecimal() and k == str(int(k)) and isinstance(name, str)
            for side in value.values() for k, name in side.items()
        )
    )  # fmt: skip


def check_keys(
    path: Path, keys: Keys, arguments: Sequence[TensorType], results: Sequence[TensorType]
) -> None:
    """Raises ProgramError where a leaf holds no keys of the generator that the manifest names."""
    of_sides = ((keys.arguments, arguments), (keys.results, results))
    for side, (generators, types) in zip(SIDES, of_sides, strict=True):
        for place, name in generators.items():
            if place >= len(types) or not _holds(types[place], name):
                got = types[place] if place < len(types) else f"{len(types)} leaves"
                raise ProgramError(
                    f"expected in {side} of {path} the numbers of random keys of {name!r} as leaf "
                    f"{place}, as its manifest says, got {got}; {AGAIN}"
                )


def _named(generators: Generators) -> dict[str, str]:
    return {str(k): name for k, name in generators.items() if isinstance(name, str)}


def _holds(kind: TensorType, generator: str) -> bool:
    wrap: Callable[..., Any] = partial(jax.random.wrap_key_data, impl=generator)
    try:
        jax.eval_shape(wrap, shape_of(kind))
    except (TypeError, ValueError):
        return False
    return True

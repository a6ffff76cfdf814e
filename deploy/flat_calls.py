"""Calls of a program's functions with flat arguments, and what they give, flat."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hlotune.hlo.calling.keys import numbers_of
from hlotune.hlo.frontends.program import Program
from hlotune.schedules.errors import ProgramError


def called(program: Program, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """Calls a program's function on flat arguments, and flattens what it gives.

    What the program donates is copied first, so that a caller's values stay.

    Raises ProgramError where XLA does not compile the program, or it fails as it runs.
    """
    return called_once(program, function, to_give_away(program, values))


def to_give_away(program: Program, values: Sequence[Any]) -> list[Any]:
    """Flat arguments for one call: copies of those that the program donates."""
    if not program.donated:
        return list(values)
    with jax.enable_x64(True):
        return [
            jnp.array(x, copy=True).block_until_ready() if k in program.donated else x
            for k, x in enumerate(values)
        ]


def called_once(program: Program, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """Does what `called` does, with values that are lost where the program donates them."""
    arguments: Sequence[Any] = values
    named: dict[str, Any] = {}
    if program.in_tree is not None:
        arguments, named = jax.tree.unflatten(program.in_tree, values)
    try:
        return [numbers_of(x) for x in jax.tree.leaves(function(*arguments, **named))]
    except jax.errors.JaxRuntimeError as error:
        said = next((line for line in str(error).splitlines() if line.strip()), "nothing")
        raise ProgramError(
            f"expected a program that XLA compiles and runs here, got {program.name}, at which it "
            f"says: {said[:300]}; leave out the operation that it names"
        ) from error

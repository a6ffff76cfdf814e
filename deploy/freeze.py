"""Binding parameters, so that their values are constants of the program."""

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.schedules.errors import ProgramError


def freeze(function: Callable[..., Any], *bound: Any) -> Callable[..., Any]:
    """The function of its remaining arguments, the leading ones bound to these values for good.

    Bound values become constants of the program: kernels take them in packed forms made once, when
    a tuned program is loaded.  Arrays that could change in place are copied; those that own their
    memory and are marked read-only are not.  A function that indexes one by a traced value, as an
    embedding does, gets those of NumPy as JAX's, which take such an index.

    Raises:
        ProgramError: what is to be frozen is no function.
    """
    if not callable(function):
        raise ProgramError(
            f"expected a function, got {type(function).__name__}; give freeze(function, parameters)"
        )
    kept = jax.tree.map(lambda x: _kept(x) if isinstance(x, np.ndarray) else x, bound)

    @functools.wraps(function)
    def frozen(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*kept, *arguments, **named)
        except jax.errors.TracerArrayConversionError:
            if not any(isinstance(x, np.ndarray) for x in jax.tree.leaves(kept)):
                raise
            return function(*_of_jax(kept), *arguments, **named)

    del frozen.__wrapped__  # its signature has the bound arguments
    with suppress(TypeError, ValueError):  # a function that is not Python's own has none
        frozen.__signature__ = inspect.signature(functools.partial(function, *kept))  # type: ignore[attr-defined]
    return frozen


def _of_jax(bound: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, bound)


def _kept(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values where nobody changes them any more."""
    if values.flags.owndata and not values.flags.writeable:
        return values
    kept = values.copy()
    kept.flags.writeable = False
    return kept

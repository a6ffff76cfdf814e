"""Functions traced by JAX, and lowered without their large constants."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from hlotune.hlo.calling.keys import Keys, generators_of, of_numbers
from hlotune.hlo.mlir.weights import TARGET, Weights, aligned, are_large, goes_outside
from hlotune.schedules.targets.cpu import HOST_PLATFORM


def weak_of(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Positions of those types of arrays that give way to others."""
    return tuple(k for k, leaf in enumerate(leaves) if getattr(leaf, "weak_type", False))


def traced_of(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[jax.stages.Traced, tuple[Any, ...], Keys]:
    """A traced function and its arguments, with the numbers of typed random keys in their place."""
    # unused arguments stay, so that the module takes exactly the leaves of the caller's pytrees
    traced = jax.jit(function, keep_unused=True).trace(*arguments)
    leaves, results = jax.tree.leaves(arguments), jax.tree.leaves(traced.out_info)
    keys = Keys(generators_of(leaves), generators_of(results))
    if not keys:
        return traced, arguments, keys
    numeric, numbers = of_numbers(function, arguments, keys)
    return jax.jit(numeric, keep_unused=True).trace(*numbers), numbers, keys


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that JAX can look up: one that calls it where it has no hash, as an object whose
    fields are arrays."""
    try:
        hash(function)
    except TypeError:
        return partial(function)
    return function


def donated_of(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[int, ...]:
    """Positions of the leaves of its arguments that a jitted function donates."""
    trace = getattr(function, "trace", None)
    info = getattr(trace(*arguments), "args_info", ()) if callable(trace) else ()
    leaves = enumerate(jax.tree.leaves(info))
    return tuple(k for k, leaf in leaves if getattr(leaf, "donated", False))


def without_weights(traced: jax.stages.Traced) -> tuple[jax.stages.Lowered, Weights]:
    """A traced function lowered, and the weights for which that has calls: it never holds them."""
    closed = _computing(traced.jaxpr)
    sizes = [getattr(c, "nbytes", 0) for c in closed.consts]
    if not are_large(sizes):
        return traced.lower(lowering_platforms=(HOST_PLATFORM,)), ()
    outside = [n for n, size in enumerate(sizes) if goes_outside(size)]
    weights = tuple(aligned(np.asarray(closed.consts[n])) for n in outside)

    def of_weights(*leaves: Any) -> Any:
        constants = list(closed.consts)
        for number, n in enumerate(outside):
            kind = jax.ShapeDtypeStruct(weights[number].shape, weights[number].dtype)  # type: ignore[no-untyped-call]
            constants[n] = jax.ffi.ffi_call(f"{TARGET}{number}", kind)()
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *leaves)

    again = jax.jit(of_weights, keep_unused=True).trace(*closed.in_avals)
    return again.lower(lowering_platforms=(HOST_PLATFORM,)), weights


def _computing(closed: Any) -> Any:
    """What a function computes; of one that only calls a jitted one, what that does, which has the
    constants."""
    while len(closed.eqns) == 1 and closed.eqns[0].primitive.name == "jit":
        (call,), outer = closed.eqns, closed.jaxpr
        if call.invars != outer.invars or call.outvars != outer.outvars:
            break
        closed = call.params["jaxpr"]
    return closed

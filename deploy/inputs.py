"""Example and random values for the arguments of a program, so small that its results are finite.

Infinities and NaNs compare with nothing: values are drawn at falling scales until none are left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.flat_calls import called
from hlotune.deploy.plain_values import finite
from hlotune.hlo.frontends.program import Program
from hlotune.measure.timing.timing import ONCE_S
from hlotune.measure.verification.inputs import draw
from hlotune.schedules.errors import ProgramError

Array = NDArray[Any]
SCALES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
"""Scales that typical random values are multiplied by, the largest first: deep programs let large
values grow until they overflow.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Values for the arguments of a program, flat."""

    name: Literal["example", "random"]
    values: tuple[Array, ...]
    drawn: tuple[int, ...] = ()
    """Positions that were drawn at random: an example may have no values, or nothing but zeros."""
    results: tuple[Array, ...] | None = None
    """What the default makes of them, where it was called to find them."""


def tame_inputs(
    program: Program,
    default: Callable[..., Any],
    seed: int = 0,
    limit_s: float = inf,
    known: Inputs | None = None,
    call_s: float = 0.0,
) -> tuple[Inputs, ...]:
    """Example and random inputs, their random values so large as leaves the results finite.

    A program whose weights lie beside its module has the example alone: both sets have its weights,
    and the oracle takes seconds for each.  So has one whose call takes `ONCE_S`, of which each
    check takes as long.  After `limit_s` seconds no further scale of a set is
    tried; random inputs for which none was found by then are left out, as what overflows on the
    way tells nothing of the rest.  Where one call takes longer than that, by `call_s`, none are
    tried.  `known` are the example inputs with what the default makes of them, where it was called
    with them before.
    """
    alone = bool(program.weights) or call_s > max(0.0, limit_s) or call_s >= ONCE_S
    makes = (example_inputs,) if alone else (example_inputs, random_inputs)
    found = [
        _tame(program, default, partial(make, program, seed), limit_s, first)
        for make, first in zip(makes, (known, None), strict=False)
    ]
    return (found[0][0], *(inputs for inputs, is_tame in found[1:] if is_tame))


def _tame(
    program: Program,
    default: Callable[..., Any],
    make: Callable[[float], Inputs],
    limit_s: float,
    first: Inputs | None = None,
) -> tuple[Inputs, bool]:
    """The largest scale at which the default's results are all finite, else most of them; and
    False where time was up before all scales were tried.  `first` are the inputs of the first scale
    where they are made already.
    """
    best, most, end_s = first or make(SCALES[0]), -1.0, time.monotonic() + limit_s
    for scale in SCALES if best.drawn else ():
        inputs = best if scale == SCALES[0] else make(scale)
        results = inputs.results or results_of(program, default, inputs)
        known = [finite(r) for r in results]
        share = sum(int(k.sum()) for k in known) / max(1, sum(k.size for k in known))
        if share > most:
            best, most = replace(inputs, results=results), share
        if most == 1 or scale == SCALES[-1]:
            break
        if time.monotonic() > end_s:
            return best, False
    return best, True


def results_of(program: Program, default: Callable[..., Any], inputs: Inputs) -> tuple[Array, ...]:
    return tuple(np.asarray(x) for x in called(program, default, inputs.values))


def example_inputs(program: Program, seed: int = 0, scale: float = 1.0) -> Inputs:
    """What the program was loaded with; random where that is missing, or zeros."""
    leaves = jax.tree.leaves(program.example_args or ())
    kept = [None if _says_nothing(x) else np.asarray(x) for x in leaves]
    _require_one_of_each(program, len(leaves))
    given = tuple(k for k in kept if k is not None)
    if leaves and len(given) == len(leaves):
        return Inputs("example", given, ())
    drawn = draw(program.graph, "normal", np.random.default_rng([seed, 1]), scale)
    if not leaves:
        return Inputs("example", drawn, tuple(range(len(drawn))))
    values = tuple(d if k is None else k for k, d in zip(kept, drawn, strict=True))
    return Inputs("example", values, tuple(i for i, k in enumerate(kept) if k is None))


def _require_one_of_each(program: Program, examples: int) -> None:
    """Raises ProgramError where there are examples, and not as many as arguments."""
    wanted = len(program.graph.argument_types)
    if examples not in (0, wanted):
        raise ProgramError(
            f"expected example values of all {wanted} arguments of {program.name} or of none, got "
            f"{examples}; give one value or shape for each"
        )


def random_inputs(program: Program, seed: int = 0, scale: float = 1.0) -> Inputs:
    drawn = draw(program.graph, "normal", np.random.default_rng([seed, 2]), scale)
    return Inputs("random", drawn, tuple(range(len(drawn))))


def _says_nothing(leaf: Any) -> bool:
    """Whether an example is a shape only, or an array of zeros."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return True
    array = np.asarray(leaf)
    return array.dtype.kind not in "biu" and array.size > 1 and not np.any(array)

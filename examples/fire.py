"""Soft spheres in a box, brought to rest by FIRE: 100 steps of the package jax-md, f32.

tune run examples/fire.py:model --budget 2m
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.layers import Factory, generator

PARTICLES, DIMENSIONS, STEPS = 128, 2, 100


def model(particles: int = PARTICLES, steps: int = STEPS) -> Factory:
    """Positions of the particles to their positions behind so many steps, and the energy there.

    Raises ImportError where jax-md is not installed.
    """
    energy, minimize, space = _package()
    side = np.sqrt(particles).astype(np.float32)
    displacement, shift = space.periodic(side)
    energy_of = energy.soft_sphere_pair(displacement)
    begin, apply = minimize.fire_descent(energy_of, shift)

    def rest(positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.lax.fori_loop(0, steps, lambda _, s: apply(s), begin(positions))
        return state.position, energy_of(state.position)

    start = generator().uniform(0, side, (particles, DIMENSIONS)).astype(np.float32)
    return rest, (jnp.asarray(start),)


def _package() -> tuple[Any, Any, Any]:
    try:
        from jax_md import energy, minimize, space
    except ImportError as error:
        raise ImportError(
            f"expected the package jax-md, got none ({error}); install it: pip install jax-md"
        ) from error
    return energy, minimize, space


def small() -> Factory:
    """For tests."""
    return model(9, 3)

"""A channel flow in two dimensions: Navier-Stokes on a grid of 256 x 256, f32.

    tune run examples/channel_flow.py:model --budget 1m

Central differences, a pressure that 20 sweeps of Jacobi find, and a force along the channel; it is
periodic along x, and the fluid rests at both walls.
"""

import jax
import jax.numpy as jnp

from examples.layers import Factory, generator, normal

GRID, STEPS, SWEEPS = 256, 10, 20
TIME_STEP, DENSITY, VISCOSITY, FORCE = 1e-4, 1.0, 0.1, 1.0
Flow = tuple[jax.Array, jax.Array, jax.Array]
"""Velocities along x and y, and the pressure; axis 0 is y."""


def along(x: jax.Array, axis: int, by: int) -> jax.Array:
    """The values of neighbours at a distance; across the walls, values from the other side, which
    `at_walls` overwrites."""
    return jnp.roll(x, -by, axis)


def slope(x: jax.Array, axis: int, spacing: float) -> jax.Array:
    return (along(x, axis, 1) - along(x, axis, -1)) / (2 * spacing)


def around(x: jax.Array) -> jax.Array:
    """The sum of the four neighbours."""
    return along(x, 0, 1) + along(x, 0, -1) + along(x, 1, 1) + along(x, 1, -1)


def at_walls(u: jax.Array) -> jax.Array:
    return u.at[0].set(0.0).at[-1].set(0.0)


def step(flow: Flow, spacing: float, sweeps: int) -> Flow:
    u, v, pressure = flow
    divergence = slope(u, 1, spacing) + slope(v, 0, spacing)
    source = DENSITY * (
        divergence / TIME_STEP
        - slope(u, 1, spacing) ** 2
        - 2 * slope(u, 0, spacing) * slope(v, 1, spacing)
        - slope(v, 0, spacing) ** 2
    )
    for _ in range(sweeps):
        pressure = (around(pressure) - spacing**2 * source) / 4
        pressure = pressure.at[0].set(pressure[1]).at[-1].set(pressure[-2])

    def moved(x: jax.Array, axis: int, force: float) -> jax.Array:
        carried = u * slope(x, 1, spacing) + v * slope(x, 0, spacing)
        spread = VISCOSITY * (around(x) - 4 * x) / spacing**2
        pushed = slope(pressure, axis, spacing) / DENSITY
        return at_walls(x + TIME_STEP * (spread - carried - pushed + force))

    return moved(u, 1, FORCE), moved(v, 0, 0.0), pressure


def model(grid: int = GRID, steps: int = STEPS, sweeps: int = SWEEPS) -> Factory:
    def simulate(u: jax.Array, v: jax.Array, pressure: jax.Array) -> Flow:
        def body(_: int, flow: Flow) -> Flow:
            return step(flow, 2.0 / grid, sweeps)

        flow: Flow = jax.lax.fori_loop(0, steps, body, (u, v, pressure))
        return flow

    rng = generator()
    return simulate, tuple(normal(rng, (grid, grid), 0.1) for _ in range(3))


def small() -> Factory:
    """For tests."""
    return model(8, 2, 2)

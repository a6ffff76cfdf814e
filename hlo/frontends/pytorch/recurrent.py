"""Recurrent layers: one product for the inputs of all steps, then a loop over the steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Refusal, Value, rows

State = tuple[jax.Array, ...]
Cell = Callable[[State, jax.Array, jax.Array], State]
"""The next state of the state and of what comes of the input and of the state, all gates together;
what is given on is the first part of it."""


def _lstm_cell(state: State, of_input: jax.Array, of_state: jax.Array) -> State:
    let_in, keep, new, let_out = jnp.split(of_input + of_state, 4, -1)
    cell = jax.nn.sigmoid(keep) * state[1] + jax.nn.sigmoid(let_in) * jnp.tanh(new)
    return jax.nn.sigmoid(let_out) * jnp.tanh(cell), cell


def _gru_cell(state: State, of_input: jax.Array, of_state: jax.Array) -> State:
    reset, update, new = jnp.split(of_input, 3, -1)
    own_reset, own_update, own_new = jnp.split(of_state, 3, -1)
    share = jax.nn.sigmoid(update + own_update)
    made = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * own_new)
    return (share * (state[0] - made) + made,)


def _plain_cell(function: Callable[[jax.Array], jax.Array]) -> Cell:
    return lambda state, of_input, of_state: (function(of_input + of_state),)


def _rule(cell: Cell) -> Any:
    def rule(
        input: Value, hx: Value, params: Sequence[Value], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        if train and dropout:
            raise Refusal("dropout in training: call module.eval() before export")
        states = [jnp.asarray(h) for h in (hx if isinstance(hx, list | tuple) else [hx])]
        directions, x = 1 + bidirectional, jnp.asarray(input)
        x = jnp.swapaxes(x, 0, 1) if batch_first else x
        weights, ends = _of_layers(params, has_biases, num_layers * directions), []
        for layer in range(num_layers):
            made = []
            for direction in range(directions):
                begin = tuple(h[layer * directions + direction] for h in states)
                end, along = _run(cell, x, begin, next(weights), bool(direction))
                made.append(along)
                ends.append(end)
            x = jnp.concatenate(made, -1) if bidirectional else made[0]
        x = jnp.swapaxes(x, 0, 1) if batch_first else x
        return (x, *(jnp.stack(parts) for parts in zip(*ends, strict=True)))

    return rule


def _of_layers(
    params: Sequence[Value], has_biases: bool, count: int
) -> Iterator[Sequence[jax.Array]]:
    each = 4 if has_biases else 2
    if len(params) != each * count:
        raise Refusal("projections of recurrent layers: leave proj_size out")
    arrays = [jnp.asarray(p) for p in params]
    return (arrays[each * n : each * (n + 1)] for n in range(count))


def _run(
    cell: Cell, x: jax.Array, begin: State, weights: Sequence[jax.Array], backwards: bool
) -> tuple[State, jax.Array]:
    """The state at the end, and what is given on at each step, of (steps, batch, features)."""
    of_input, of_state, *biases = weights
    given = x @ of_input.T + (biases[0] if biases else 0)

    def step(state: State, one: jax.Array) -> tuple[State, jax.Array]:
        made = state[0] @ of_state.T + (biases[1] if biases else 0)
        state = cell(state, one, made)
        return state, state[0]

    return lax.scan(step, begin, given, reverse=backwards)


ROWS = rows(
    lstm=_rule(_lstm_cell), gru=_rule(_gru_cell), rnn_tanh=_rule(_plain_cell(jnp.tanh)),
    rnn_relu=_rule(_plain_cell(jax.nn.relu)),
)  # fmt: skip

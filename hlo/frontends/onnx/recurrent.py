"""Recurrent layers: RNN, GRU, LSTM.

Each step of time is an iteration of a loop; the products of all inputs by their weights come
before it.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value

_Activation = Callable[[jax.Array], jax.Array]
_PARAMETERS = {
    "Affine": (1.0, 0.0), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,),
    "ScaledTanh": (1.0, 1.0), "ThresholdedRelu": (1.0,),
}  # fmt: skip
"""Defaults of alpha and beta."""
_ACTIVATIONS: dict[str, Callable[..., jax.Array]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": lambda x, alpha: jnp.where(x < 0, alpha * jnp.expm1(x), x),
    "HardSigmoid": lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha: jnp.where(x < 0, alpha * x, x),
    "Relu": lambda x: jnp.maximum(x, 0),
    "ScaledTanh": lambda x, alpha, beta: alpha * jnp.tanh(beta * x),
    "Sigmoid": jax.nn.sigmoid,
    "Softplus": jax.nn.softplus,
    "Softsign": lambda x: x / (1 + jnp.abs(x)),
    "Tanh": jnp.tanh,
    "ThresholdedRelu": lambda x, alpha: jnp.where(x > alpha, x, 0),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One direction of a recurrent layer."""

    inputs: jax.Array
    """The products of inputs by weights, with biases: (time, batch, gates * hidden)."""
    recurrent: jax.Array
    """(gates * hidden, hidden)."""
    bias: jax.Array
    """That of the recurrent weights: (gates * hidden,)."""
    peepholes: Any
    activations: Sequence[_Activation]
    clip: float | None

    def clipped(self, x: jax.Array) -> jax.Array:
        return x if self.clip is None else jnp.clip(x, -self.clip, self.clip)

    def product(self, hidden: jax.Array, rows: slice = slice(None)) -> jax.Array:
        return hidden @ self.recurrent[rows].T


_State = tuple[jax.Array, ...]
_Step = Callable[[_Layer, _State, jax.Array], _State]


def _rnn(node: Node, layer: _Layer, state: _State, inputs: jax.Array) -> _State:
    (f,) = layer.activations
    return (f(layer.clipped(inputs + layer.product(state[0]) + layer.bias)),)


def _gru(node: Node, layer: _Layer, state: _State, inputs: jax.Array) -> _State:
    (hidden,) = state
    f, g = layer.activations
    size = hidden.shape[-1]
    both, last = slice(0, 2 * size), slice(2 * size, None)
    gates = inputs[:, both] + layer.product(hidden, both) + layer.bias[both]
    update, reset = jnp.split(f(layer.clipped(gates)), 2, -1)
    if node.get("linear_before_reset", 0):
        inner = reset * (layer.product(hidden, last) + layer.bias[last])
    else:
        inner = layer.product(reset * hidden, last) + layer.bias[last]
    new = g(layer.clipped(inputs[:, last] + inner))
    return ((1 - update) * new + update * hidden,)


def _lstm(node: Node, layer: _Layer, state: _State, inputs: jax.Array) -> _State:
    hidden, cell = state
    f, g, h = layer.activations
    parts = jnp.split(inputs + layer.product(hidden) + layer.bias, 4, -1)
    enter, leave, forget, new = parts
    if layer.peepholes is not None:
        of_enter, of_leave, of_forget = jnp.split(layer.peepholes, 3)
        enter, forget = enter + of_enter * cell, forget + of_forget * cell
    enter = f(layer.clipped(enter))
    forget = 1 - enter if node.get("input_forget", 0) else f(layer.clipped(forget))
    cell = forget * cell + enter * g(layer.clipped(new))
    leave = leave + of_leave * cell if layer.peepholes is not None else leave
    return f(layer.clipped(leave)) * h(cell), cell


def _recurrent(step: Any, gates: int, defaults: Sequence[str], states: int) -> Operator:
    def rule(
        node: Node, x: Value, weights: Value, recurrent: Value, bias: Value = None,
        lengths: Value = None, hidden: Value = None, cell: Value = None, peepholes: Value = None,
    ) -> Value:  # fmt: skip
        x, by_batch = jnp.asarray(x), bool(node.get("layout", 0))
        x = jnp.swapaxes(x, 0, 1) if by_batch else x
        directions, size = weights.shape[0], recurrent.shape[-1]
        given = [None if s is None else jnp.asarray(s) for s in (hidden, cell)[:states]]
        given = [jnp.swapaxes(s, 0, 1) if by_batch and s is not None else s for s in given]
        zeros = jnp.zeros((x.shape[1], size), x.dtype)
        outputs, last = [], []
        for n in range(directions):
            layer = _Layer(
                *_products(x, weights[n], recurrent[n], bias if bias is None else bias[n], gates),
                None if peepholes is None else jnp.asarray(peepholes[n]),
                _activations(node, defaults, n),
                node.get("clip"),
            )
            first = tuple(zeros if s is None else s[n] for s in given)
            backwards = n == 1 or node.get("direction", "forward") == "reverse"
            made = _unrolled(functools.partial(step, node), layer, first, lengths, backwards)
            outputs.append(made[0])
            last.append(made[1])
        return _results(outputs, last, by_batch)

    return Operator(rule)


def _products(
    x: jax.Array, weights: Value, recurrent: Value, bias: Value, gates: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    recurrent = jnp.asarray(recurrent)
    rows = recurrent.shape[0]
    products = jnp.matmul(x, jnp.asarray(weights).T)
    if bias is None:
        return products, recurrent, jnp.zeros(rows, x.dtype)
    bias = jnp.asarray(bias)
    return products + bias[:rows], recurrent, bias[rows:]


def _activations(node: Node, defaults: Sequence[str], direction: int) -> list[_Activation]:
    """The activations of one direction; alphas and betas are listed of all that have them."""
    count = len(defaults)
    names = node.get("activations") or [*defaults, *defaults]
    alphas, betas = (list(node.get(f"activation_{p}", [])) for p in ("alpha", "beta"))
    found: list[_Activation] = []
    for name in names[: count * (direction + 1)]:
        if name not in _ACTIVATIONS:
            raise node.refusal(f"with activation {name!r}", "use one that ONNX names")
        own = list(_PARAMETERS.get(name, ()))
        for place, listed in enumerate((alphas, betas)):
            if len(own) > place and listed:
                own[place] = listed.pop(0)
        found.append(functools.partial(_with_parameters, _ACTIVATIONS[name], own))
    return found[count * direction :]


def _with_parameters(
    function: Callable[..., jax.Array], parameters: Sequence[float], x: jax.Array
) -> jax.Array:
    return function(x, *parameters)


def _unrolled(
    step: _Step, layer: _Layer, first: _State, lengths: Value, backwards: bool
) -> tuple[jax.Array, _State]:
    """The outputs of all steps, (time, batch, hidden), and the last state.

    A sequence that is shorter keeps its state and gives zeros behind its end.
    """
    inputs = layer.inputs
    time = inputs.shape[0]
    ends = None if lengths is None else jnp.asarray(lengths)
    if backwards:
        inputs = _turned(inputs, ends)

    def one(state: _State, at: tuple[jax.Array, jax.Array]) -> tuple[_State, jax.Array]:
        number, now = at
        new = step(layer, state, now)
        if ends is None:
            return new, new[0]
        runs = (number < ends)[:, None]
        kept = tuple(jnp.where(runs, a, b) for a, b in zip(new, state, strict=True))
        return kept, jnp.where(runs, new[0], jnp.zeros_like(new[0]))

    last, outputs = lax.scan(one, first, (jnp.arange(time, dtype=np.int32), inputs))
    return (_turned(outputs, ends) if backwards else outputs), last


def _turned(x: jax.Array, ends: Any) -> jax.Array:
    """Each sequence backwards, up to its own end."""
    if ends is None:
        return jnp.flip(x, 0)
    places = jnp.arange(x.shape[0], dtype=ends.dtype)[:, None]
    places = jnp.where(places < ends, ends - 1 - places, places)
    return jnp.take_along_axis(x, places[:, :, None], 0)


def _results(
    outputs: Sequence[jax.Array], last: Sequence[_State], by_batch: bool
) -> tuple[jax.Array, ...]:
    """(time, directions, batch, hidden), and the last states (directions, batch, hidden)."""
    every = jnp.stack(outputs, 1)
    ends = [jnp.stack(parts) for parts in zip(*last, strict=True)]
    if by_batch:
        return every.transpose(2, 0, 1, 3), *(jnp.swapaxes(e, 0, 1) for e in ends)
    return every, *ends


ROWS = {
    "GRU": _recurrent(_gru, 3, ("Sigmoid", "Tanh"), 1),
    "LSTM": _recurrent(_lstm, 4, ("Sigmoid", "Tanh", "Tanh"), 2),
    "RNN": _recurrent(_rnn, 1, ("Tanh",), 1),
}

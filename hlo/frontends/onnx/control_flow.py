"""Branches and loops."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of, is_known
from hlotune.schedules.errors import ProgramError

MOST_UNROLLED = 16
"""Iterations of a loop that are written out, each with known values where its number is used."""


def _if(node: Node, condition: Value) -> Value:
    branches = [node.require(name) for name in ("then_branch", "else_branch")]
    if is_known(condition):
        return tuple(node.run(branches[0 if np.asarray(condition).reshape(-1)[0] else 1], ()))
    then, otherwise = (_traced(node, b) for b in branches)
    return tuple(lax.cond(jnp.asarray(condition).reshape(()), then, otherwise))


def _traced(node: Node, graph: Any) -> Any:
    return lambda *inputs: [jnp.asarray(v) for v in node.run(graph, inputs)]


def _loop(node: Node, limit: Value = None, condition: Value = None, *carried: Value) -> Value:
    """Iterations are counted, go on while a condition holds, or both."""
    body = node.require("body")
    stacked = len(body.output) - 1 - len(carried)
    starts = condition is None or (is_known(condition) and np.asarray(condition).all())
    if limit is not None and is_known(limit):
        count = int(np.asarray(limit).reshape(-1)[0])
        if is_known(condition) and not np.asarray(condition).all():
            count = 0
        if count == 0 or (starts and count <= MOST_UNROLLED):
            return _unrolled(node, body, max(count, 0), list(carried), stacked)
        if starts and (made := _counted(node, body, count, carried)) is not None:
            return made
    if stacked:
        raise _unknown_length(node)
    return _while(node, body, limit, condition, carried)


def _unknown_length(node: Node) -> ProgramError:
    return node.refusal(
        "with results of each iteration whose number is computed from arguments of the program",
        "hlotune takes static shapes: write the loop with a constant number of iterations",
    )


def _unrolled(
    node: Node, body: Any, count: int, carried: list[Value], stacked: int
) -> tuple[Value, ...]:
    rows: list[list[Value]] = [[] for _ in range(stacked)]
    for number in range(count):
        goes_on, *results = node.run(body, [np.array(number), np.array(True), *carried])
        carried = results[: len(carried)]
        for row, value in zip(rows, results[len(carried) :], strict=True):
            row.append(value)
        if not is_known(goes_on):
            return _by_condition(node, body, count, number, goes_on, carried, stacked)
        if not np.asarray(goes_on).all():
            break
    if stacked and not rows[0]:
        raise node.refusal("of no iteration, with results of each iteration", "leave it out")
    return (*carried, *(jnp.stack([jnp.asarray(v) for v in row]) for row in rows))


def _by_condition(
    node: Node, body: Any, count: int, number: int, goes_on: Value, carried: list[Value],
    stacked: int,
) -> tuple[Value, ...]:  # fmt: skip
    """The iterations behind one whose condition is known only as the program runs."""
    if stacked:
        raise _unknown_length(node)
    return _while(node, body, np.array(count), goes_on, carried, number + 1)


def _counted(
    node: Node, body: Any, count: int, carried: Sequence[Value]
) -> tuple[Value, ...] | None:
    """A loop of so many iterations; None where its condition is known only as it runs."""
    known = True

    def step(state: list[jax.Array], number: jax.Array) -> Any:
        nonlocal known
        goes_on, *results = node.run(body, [number, np.array(True), *state])
        known = known and is_known(goes_on) and bool(np.asarray(goes_on).all())
        values = [jnp.asarray(v) for v in results]
        return values[: len(state)], values[len(state) :]

    first = [jnp.asarray(v) for v in carried]
    last, rows = lax.scan(step, first, jnp.arange(count, dtype=np.int64))
    return (*last, *rows) if known else None


def _while(
    node: Node, body: Any, limit: Value, condition: Value, carried: Sequence[Value], begin: int = 0
) -> tuple[Value, ...]:
    most = np.iinfo(np.int64).max if limit is None else jnp.asarray(limit).reshape(())
    goes_on = True if condition is None else jnp.asarray(condition).reshape(())

    def runs(state: Any) -> Any:
        return state[1] & (state[0] < most)

    def step(state: Any) -> Any:
        number, _, values = state
        goes_on, *results = node.run(body, [number, jnp.asarray(True), *values])
        return number + 1, jnp.asarray(goes_on).reshape(()), [jnp.asarray(v) for v in results]

    first = (jnp.asarray(begin, np.int64), jnp.asarray(goes_on), [jnp.asarray(v) for v in carried])
    return tuple(lax.while_loop(runs, step, first)[2])


def _scan(node: Node, *inputs: Value) -> Value:
    """Runs a graph along axes of some inputs; carries the others from each iteration on."""
    if node.opset < 9:
        raise node.refusal("of opset 8", "convert the model to opset 9 or later")
    body, scanned = node.require("body"), node.require("num_scan_inputs")
    states, along = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
    made = len(body.output) - len(states)
    axes = node.get("scan_input_axes", [0] * scanned)
    backwards = node.get("scan_input_directions", [0] * scanned)
    rows = [
        _in_turn(jnp.moveaxis(jnp.asarray(x), axis_of(axis, x.ndim), 0), turn)
        for x, axis, turn in zip(along, axes, backwards, strict=True)
    ]

    def step(state: list[jax.Array], row: list[jax.Array]) -> Any:
        values = [jnp.asarray(v) for v in node.run(body, [*state, *row])]
        return values[: len(state)], values[len(state) :]

    last, results = lax.scan(step, [jnp.asarray(s) for s in states], rows)
    out_axes = node.get("scan_output_axes", [0] * made)
    turns = node.get("scan_output_directions", [0] * made)
    facts = zip(results, out_axes, turns, strict=True)
    ordered = (jnp.moveaxis(_in_turn(r, t), 0, axis_of(a, r.ndim)) for r, a, t in facts)
    return (*last, *ordered)


def _in_turn(x: jax.Array, backwards: int) -> jax.Array:
    return jnp.flip(x, 0) if backwards else x


ROWS = {
    "If": Operator(_if),
    "Loop": Operator(_loop),
    "Scan": Operator(_scan),
}

"""Calls of a block that can be made one behind the other, with nothing else in between."""

from collections.abc import Callable, Sequence
from typing import Any

from hlotune.hlo.mlir.rewrite import dependences


def runs(operations: Sequence[Any], is_call: Callable[[Any], bool]) -> list[list[Any]]:
    """The calls of a block, each in one run, and reshapes of what they give; as few runs as there
    can be.

    What waits for no call comes ahead of the first run, and what waits for calls of earlier runs
    alone comes between two.  A reshape moves nothing, and waits for no run to end.

    Args:
        operations: those of the block, values ahead of their uses.
    """
    level: dict[Any, int] = {}
    """Odd numbers are those of runs; even ones of what comes between."""
    found: dict[int, list[Any]] = {}
    for operation in operations:
        before = [level[d] for d in dependences(operation) if d in level]
        if is_call(operation):
            at = max((k if k % 2 else k + 1 for k in before), default=1)
        elif operation.name == "stablehlo.reshape":
            at = max(before, default=0)
        else:
            at = max((k + k % 2 for k in before), default=0)
        level[operation] = at
        if at % 2:
            found.setdefault(at, []).append(operation)
    return [found[at] for at in sorted(found)]

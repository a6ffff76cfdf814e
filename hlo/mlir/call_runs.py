"""Calls of a block that can be made one behind the other, with nothing else in between."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hlotune.hlo.mlir.rewrite import dependences

_Levels = dict[Any, int]
"""The number of each operation of a block: odd in runs, even for what comes between two."""
_RESHAPE = "stablehlo.reshape"


def runs(
    operations: Sequence[Any],
    is_call: Callable[[Any], bool],
    can_wait: Callable[[Any], bool] = lambda call: False,
) -> list[list[Any]]:
    """The calls of a block, each in one run, and reshapes of what they give; as few runs as there
    can be.

    What waits for no call comes ahead of the first run, and what waits for calls of earlier runs
    alone comes between two.  A reshape moves nothing, and waits for no run to end.

    Args:
        operations: those of the block, values ahead of their uses.
        can_wait: whether a call is better made late: it comes right ahead of who reads it first.
    """
    level = _earliest(operations, is_call)
    for operation in reversed(operations):
        if is_call(operation) and can_wait(operation):
            _put_off(operation, level)
    found: dict[int, list[Any]] = {}
    for operation, at in level.items():
        if at % 2:
            found.setdefault(at, []).append(operation)
    return [found[at] for at in sorted(found)]


def _earliest(operations: Sequence[Any], is_call: Callable[[Any], bool]) -> _Levels:
    level: _Levels = {}
    for operation in operations:
        before = [level[d] for d in dependences(operation) if d in level]
        if is_call(operation):
            at = max((k if k % 2 else k + 1 for k in before), default=1)
        elif operation.name == _RESHAPE:
            at = max(before, default=0)
        else:
            at = max((k + k % 2 for k in before), default=0)
        level[operation] = at
    return level


def _put_off(call: Any, level: _Levels) -> None:
    """Puts a call, with the reshapes of what it gives, into the last run that its readers allow."""
    moved = [call]
    for operation in moved:  # reshapes are added as they are found
        moved += [o for o in _readers(operation, level) if o.name == _RESHAPE and o not in moved]
    readers = (o for x in moved for o in _readers(x, level) if o not in moved)
    latest = min((k if (k := level[o]) % 2 else k - 1 for o in readers), default=0)
    for operation in moved:
        level[operation] = max(level[operation], latest)


def _readers(operation: Any, level: _Levels) -> Iterator[Any]:
    """The operations of the block that read what one gives, also inside their regions."""
    for result in operation.results:
        for use in result.uses:
            reader = use.owner.operation
            while reader not in level:
                reader = reader.parent.operation
            yield reader

"""Operations of MLIR that are looked for, and put in the place of others."""

from collections.abc import Callable, Sequence
from typing import Any

from hlotune.hlo.mlir.versions import ir


def operations_in(root: Any, wanted: Callable[[str], bool]) -> list[Any]:
    """The operations inside `root` whose name is wanted, in order."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if wanted(operation.name):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found


def replace(old: Sequence[Any], results: Sequence[Any], values: Sequence[Any]) -> None:
    """Puts values in the place of the results of operations, which are erased.

    Operations that read other results of these, and that nothing reads, are erased with them.
    """
    for before, after in zip(results, values, strict=True):
        before.replace_all_uses_with(after)
    for operation in reversed(old):
        _erase_unused_readers(operation)
        # erasing what is still read would leave a dangling pointer, not an error
        assert not _readers(operation)
        operation.erase()


def _erase_unused_readers(operation: Any) -> None:
    """Erases the readers of an operation that nothing reads, and theirs before them."""
    waiting = _readers(operation)
    while waiting:
        reader = waiting[-1]
        above = _readers(reader)
        if above:
            waiting += above
        else:
            assert len(reader.results), "what a function returns is a result of some operation"
            waiting = [x for x in waiting if x != reader]
            reader.erase()


def _readers(operation: Any) -> list[Any]:
    """The operations that read an operation's results, each once."""
    found: list[Any] = []
    for result in operation.results:
        for use in result.uses:
            if use.owner not in found:
                found.append(use.owner)
    return found

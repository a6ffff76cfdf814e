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
    """Puts values in the place of the results of operations, which are erased."""
    for before, after in zip(results, values, strict=True):
        before.replace_all_uses_with(after)
    for operation in reversed(old):
        # erasing what is still read would leave a dangling pointer, not an error
        assert not any(True for result in operation.results for _ in result.uses)
        operation.erase()

"""Functions of one program for several shapes of its arguments; a call picks one by shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.stages import Lowered

from hlotune.hlo.calling.arguments import by_position
from hlotune.hlo.calling.callable import JittedProgram
from hlotune.schedules.errors import ProgramError

Shapes = tuple[tuple[int, ...], ...]
"""The shape of each argument, in flat order."""


@dataclass(frozen=True, slots=True, eq=False)
class ByShapes:
    """One function that calls the jitted function made for the shapes of its arguments."""

    functions: dict[Shapes, JittedProgram]
    names: Sequence[str]
    """The names of the arguments, as `names_of` gives them."""

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._chosen(arguments, named)(*arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """Lowers the one function that takes arguments of these shapes."""
        return self._chosen(arguments, named).lower(*arguments, **named)

    def _chosen(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> JittedProgram:
        leaves = jax.tree.leaves(by_position(self.names, arguments, named))
        shapes = tuple(tuple(jax.typeof(leaf).shape) for leaf in leaves)
        if shapes not in self.functions:
            raise TypeError(
                "expected arguments of the shapes of a variant, "
                f"{' or '.join(map(_said, self.functions))}, got {_said(shapes)}; pad them to one "
                "of these, or make a variant of that size too (--dim)"
            )
        return self.functions[shapes]


def require_different(shapes: Sequence[Shapes]) -> None:
    """Raises ProgramError where two variants take the same shapes."""
    if len(set(shapes)) < len(shapes):
        raise ProgramError(
            "expected variants of a program for different shapes, got two for the same, "
            f"{_said(max(shapes, key=list(shapes).count))}; leave one out"
        )


def _said(shapes: Shapes) -> str:
    return f"({', '.join('x'.join(map(str, s)) or 'scalar' for s in shapes)})"

"""Functions of one program for several shapes and types of its arguments; a call picks one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.stages import Lowered

from hlotune.hlo.calling.arguments import by_position
from hlotune.hlo.calling.callable import JittedProgram
from hlotune.hlo.calling.keys import numbers_of
from hlotune.hlo.graph import TensorType, numpy_dtype
from hlotune.schedules.errors import ProgramError

Kinds = tuple[tuple[tuple[int, ...], str], ...]
"""The shape and NumPy's name of the element type of each argument, in flat order."""


def kinds_of(types: Iterable[TensorType]) -> Kinds:
    return tuple((kind.shape, numpy_dtype(kind.dtype).name) for kind in types)


@dataclass(frozen=True, slots=True, eq=False)
class ByShapes:
    """One function that calls the jitted function made for the shapes of its arguments.

    Where several are for the same shapes, the element types decide.
    """

    functions: dict[Kinds, JittedProgram]
    names: Sequence[str]
    """The names of the arguments, as `names_of` gives them."""

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._chosen(arguments, named)(*arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """Lowers the one function that takes such arguments."""
        return self._chosen(arguments, named).lower(*arguments, **named)

    def _chosen(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> JittedProgram:
        types = (
            jax.typeof(numbers_of(x))
            for x in jax.tree.leaves(by_position(self.names, arguments, named))
        )
        given = tuple((tuple(t.shape), t.dtype.name) for t in types)
        if given in self.functions:
            return self.functions[given]
        fitting = [f for kinds, f in self.functions.items() if _shapes(kinds) == _shapes(given)]
        if len(fitting) != 1:
            raise TypeError(
                "expected arguments of the shapes of a variant, "
                f"{' or '.join(map(self._said, self.functions))}, got {self._said(given)}; pad "
                "them to one of these, or make a variant of that size too (--dim)"
            )
        return fitting[0]

    def _said(self, kinds: Kinds) -> str:
        """The shapes; the element types too where variants differ in these alone."""
        shapes = set(map(_shapes, self.functions))
        return said(kinds, typed=len(shapes) < len(self.functions))


def require_different(variants: Sequence[Kinds]) -> None:
    """Raises ProgramError where two variants take the same shapes and element types."""
    if len(set(variants)) < len(variants):
        raise ProgramError(
            "expected variants of a program for different shapes or element types, got two for "
            f"the same, {said(max(variants, key=list(variants).count))}; leave one out"
        )


def said(kinds: Kinds, *, typed: bool = False) -> str:
    """The shapes of arguments for a message, as `(4x16, scalar)`; `typed` as `(float32 4x16)`."""
    shapes = ("x".join(map(str, shape)) or "scalar" for shape in _shapes(kinds))
    types = (f"{name} " if typed else "" for _, name in kinds)
    return f"({', '.join(map(str.__add__, types, shapes))})"


def _shapes(kinds: Kinds) -> tuple[tuple[int, ...], ...]:
    return tuple(shape for shape, _ in kinds)

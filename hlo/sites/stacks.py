"""Parts of constants that loops read one after another, as `lax.scan` over layers does."""

from dataclasses import dataclass

from hlotune.hlo.graph import Literal
from hlotune.hlo.sites.scalars import scalars_behind
from hlotune.hlo.sites.scopes import Scope

INDICES = frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32"})
"""Types of places that i64 holds."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A constant of which a region reads one part along the first axis each time that it runs."""

    source: Literal | int
    """Its value, or the program's argument that is marked as a constant."""
    index: int
    """The value of the region that says which part; from the first to the last one, to which
    `dynamic_slice` brings others."""
    made_by: tuple[int, ...]
    """The operations of the region, on scalars alone, that compute the index, in order."""


def stack_of(scope: Scope, value: int) -> Stack | None:
    """The stack of which a value of a region is a part; None where it is no such part."""
    graph = scope.graph
    part = scope.producer(value)
    if part is not None and part.name == "stablehlo.reshape":
        part = scope.producer(part.operands[0])
    if part is None or part.name != "stablehlo.dynamic_slice" or len(part.operands) < 2:
        return None
    whole, index = part.operands[:2]
    shape = graph.types[whole].shape
    is_part = graph.types[part.results[0]].shape == (1, *shape[1:])
    if not is_part or graph.types[value].shape not in (shape[1:], (1, *shape[1:])):
        return None
    source, made_by = scope.constant(whole), scalars_behind(scope, [index])
    if source is None or made_by is None or graph.types[index].dtype not in INDICES:
        return None
    return Stack(source, index, made_by.operations)

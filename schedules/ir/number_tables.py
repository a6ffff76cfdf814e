"""Temporaries of integers that depend on no argument, such as the positions along an axis."""

from collections.abc import Mapping
from itertools import product

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Apply, Const, Expr, Load

MOST_NUMBERS = 1 << 14
"""Elements of a table that is worked out."""
Table = Mapping[tuple[int, ...], int]
"""The elements by their indices."""


class NumberTables:
    """Works out the elements of a compute's small tables, each once."""

    def __init__(self, compute: Compute) -> None:
        self._makers: dict[str, Stage] = {x.tensor: s for s in compute.stages for x in s.stores}
        self._known: dict[str, Table | None] = {}

    def table(self, tensor: str) -> Table | None:
        """The elements of a small tensor of integers that depends on no argument; None for any
        other tensor."""
        if tensor not in self._known:
            self._known[tensor] = self._worked_out(tensor)
        return self._known[tensor]

    def number(self, e: Expr, at: Mapping[str, int]) -> int | None:
        """The value of an integer expression at a point; None where arguments decide it."""
        if isinstance(e, Const):
            return int(e.value) if not e.dtype.startswith(("f", "bf")) else None
        if isinstance(e, Load):
            table = self.table(e.tensor)
            place = tuple(x.value(at) for x in e.index)
            return None if table is None or e.divisors or e.beside else table.get(place)
        if not isinstance(e, Apply) or e.op not in ("add", "subtract", "multiply", "convert"):
            return None
        if e.dtype not in ("i32", "i64"):
            return None
        args = [self.number(a, at) for a in e.args]
        known = [a for a in args if a is not None]
        if len(known) < len(args):
            return None
        if e.op == "convert":
            return known[0]
        a, b = known
        return a + b if e.op == "add" else a - b if e.op == "subtract" else a * b

    def _worked_out(self, tensor: str) -> Table | None:
        s = self._makers.get(tensor)
        if s is None or s.combine is not None or s.points > MOST_NUMBERS:
            return None
        found = dict[tuple[int, ...], int]()
        for point in product(*(range(a.extent) for a in s.parallel)):
            at = dict(zip((a.name for a in s.parallel), point, strict=True))
            for store, value in zip(s.stores, s.values, strict=True):
                number = self.number(value, at)
                if number is None:
                    return None
                if store.tensor == tensor:
                    found[tuple(e.value(at) for e in store.index)] = number
        return found

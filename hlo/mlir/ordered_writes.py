"""Puts calls that write over an argument of the program behind those that read it.

A program's update of a weight may be written into the memory of the weight.  As long as nothing
says that a call which reads it comes first, XLA copies it ahead of both, and then once more.  Calls
of ours take no notice of operands behind their own: so the call that writes takes a result of each
call that reads, and XLA copies nothing.  A call that takes parts of stacks is left as it is, since
its last operands say which parts: XLA copies what it writes over.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hlotune.hlo.mlir.custom_calls import aliases_of, config_of, is_call_of, own_results, row_major
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.rewrite import dependences, sort_block
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir
from hlotune.hlo.mlir.walking import replace

_LAYOUTS = "operand_layouts"


def order_writes(module: Module, target: str) -> None:
    """Puts calls of `target` that write over an argument of the program behind the calls of it that
    read this argument, where these do not wait for them.

    Args:
        target: what the calls name; it takes no notice of operands behind those that it knows,
            unless the call takes parts of stacks.
    """
    with module.op.context, ir.Location.unknown():
        block = module.function("main").regions[0].blocks[0]
        order = _Order(block)
        found = {call: _put_behind_readers(call, order, target) for call in order.calls(target)}
        made = {call: _waiting(call, readers) for call, readers in found.items() if readers}
        # all at once: a call that waits may itself be waited for
        replace(list(made), _results(made), _results(made.values()))
        sort_block(block)


class _Order:
    """Which operations of a block wait for which."""

    def __init__(self, block: Any) -> None:
        self.operations = [o.operation for o in block.operations]
        self._place = {o: i for i, o in enumerate(self.operations)}
        self._above: list[int] = []
        for operation in self.operations:
            above = 0
            for other in dependences(operation):
                if (k := self._place.get(other)) is not None:
                    above |= self._above[k] | 1 << k
            self._above.append(above)

    def __contains__(self, operation: Any) -> bool:
        return operation in self._place

    def calls(self, target: str) -> Iterator[Any]:
        return (o for o in self.operations if is_call_of(o, target))

    def waits(self, late: Any, early: Any) -> bool:
        """Whether an operation of the block waits for another one, or is it."""
        return late == early or bool(self._above[self._place[late]] >> self._place[early] & 1)

    def put_behind(self, late: Any, early: Any) -> None:
        more, at = self._above[self._place[early]] | 1 << self._place[early], self._place[late]
        for k, above in enumerate(self._above):
            if k == at or above >> at & 1:
                self._above[k] = above | more


def _put_behind_readers(call: Any, order: _Order, target: str) -> list[Any]:
    """Has a call wait, in an order, for those that read what it writes over: gives those of which
    nothing said before that they come first."""
    found: list[Any] = []
    if config_of(call).get("stacks"):
        return found
    for value in _written_over(call):
        for use in value.uses:
            reader = use.owner.operation
            if not is_call_of(reader, target) or reader not in order:
                continue
            if not order.waits(call, reader) and not order.waits(reader, call):
                order.put_behind(call, reader)
                found.append(reader)
    return found


def _written_over(call: Any) -> Iterator[Any]:
    """The arguments of the program in whose memory a call has results."""
    for _, operand in aliases_of(call):
        value = call.operands[operand]
        if isinstance(value.owner, ir.Block):
            yield value


def _waiting(call: Any, readers: Sequence[Any]) -> Any:
    """A call like another one that takes the smallest result of each of some others too, as
    operands behind its own."""
    smallest = [min(own_results(r), key=lambda x: tensor_type(x.type).bytes) for r in readers]
    operands = [*call.operands, *smallest]
    attributes = {name: call.attributes[name] for name in call.attributes}
    layouts = [*ir.ArrayAttr(attributes[_LAYOUTS]), *(row_major(x.type) for x in smallest)]
    attributes[_LAYOUTS] = ir.ArrayAttr.get(layouts)
    with ir.InsertionPoint(call):
        types = [r.type for r in call.results]
        return ir.Operation.create(call.name, types, operands, attributes)


def _results(calls: Iterable[Any]) -> list[Any]:
    return [value for call in calls for value in call.results]

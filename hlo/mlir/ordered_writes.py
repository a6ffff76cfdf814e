"""Calls that write over an argument of the program behind those that read it.

A program's update of a weight may be written into the memory of the weight.  As long as nothing
says that a call which reads it comes first, XLA copies it ahead of both, and then once more.  Calls
of ours take no notice of operands behind their own: so the call that writes takes a result of each
call that reads, and XLA copies nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hlotune.hlo.mlir.custom_calls import is_call_of
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.rewrite import dependences, sort_block
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import replace

_ALIASES, _LAYOUTS = "output_operand_aliases", "operand_layouts"


def order_writes(module: Module, target: str) -> None:
    """Puts calls of `target` that write over an argument of the program behind the calls of it that
    read this argument, where these do not wait for them.

    Args:
        target: what the calls name; it takes no notice of operands behind those that it knows.
    """
    with module.op.context, ir.Location.unknown():
        block = module.function("main").regions[0].blocks[0]
        order = _Order(block)
        found = {call: list(_read_before(call, order, target)) for call in order.calls(target)}
        for call, readers in found.items():
            if readers:
                _wait(call, readers)
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


def _read_before(call: Any, order: _Order, target: str) -> Iterator[Any]:
    """The calls that read what a call writes over, and of which nothing says that they come first;
    from now on it waits for them."""
    for value in _written_over(call):
        for use in value.uses:
            reader = use.owner.operation
            if not is_call_of(reader, target) or reader not in order:
                continue
            if not order.waits(call, reader) and not order.waits(reader, call):
                order.put_behind(call, reader)
                yield reader


def _written_over(call: Any) -> Iterator[Any]:
    """The arguments of the program in whose memory a call has results."""
    if _ALIASES in call.attributes:
        for alias in ir.ArrayAttr(call.attributes[_ALIASES]):
            value = call.operands[stablehlo.OutputOperandAlias(alias).operand_index]
            if isinstance(value.owner, ir.Block):
                yield value


def _wait(call: Any, readers: Sequence[Any]) -> None:
    """Gives a call the smallest result of each of some others, as operands behind its own."""
    smallest = [min(r.results, key=lambda x: tensor_type(x.type).bytes) for r in readers]
    operands = [*call.operands, *smallest]
    attributes = {name: call.attributes[name] for name in call.attributes}
    layouts = [*ir.ArrayAttr(attributes[_LAYOUTS]), *(_row_major(x) for x in smallest)]
    attributes[_LAYOUTS] = ir.ArrayAttr.get(layouts)
    with ir.InsertionPoint(call):
        types = [r.type for r in call.results]
        made = ir.Operation.create(call.name, types, operands, attributes)
    replace([call], list(call.results), list(made.results))


def _row_major(value: Any) -> Any:
    rank = len(tensor_type(value.type).shape)
    order = f"[{', '.join(map(str, reversed(range(rank))))}]" if rank else ""
    return ir.Attribute.parse(f"dense<{order}> : tensor<{rank}xindex>")

"""Rewriting of MLIR modules: the normal form, and functions put in the place of groups of
operations.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hlotune.hlo.mlir.admission import check_operations
from hlotune.hlo.mlir.expansions import expand
from hlotune.hlo.mlir.module import CONSTANT_MARK, Module
from hlotune.hlo.mlir.shardings import PARTITIONS, REPLICAS, ignored_shardings
from hlotune.hlo.mlir.stored_values import put_values
from hlotune.hlo.mlir.versions import inlined_func_call, ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.schedules.errors import ProgramError

KEPT = ("chlo.erf", "chlo.erfc", "chlo.top_k")
"""Operations with a meaning of their own: one operation until code generation, and in XLA."""

_STAND_IN = "hlotune.kept."
_DEPRECATED = "stablehlo-legalize-deprecated-ops{fail-on-unused=false}"
"""A pass that, with this option, leaves map and rng alone, for which it has no other form."""
_MISSING_VALUES = "hlotune.missing_values"
_NOTES = "hlotune.notes"
_DONATED = "hlotune.donated"
_ALIASES = "mhlo.input_output_alias"
_DONATION = ("tf.aliasing_output", "jax.buffer_donor")
"""Attributes of arguments whose memory a caller gives away."""
_MODULE_ATTRIBUTES = (PARTITIONS, REPLICAS)


@dataclass(frozen=True, slots=True)
class Notes:
    """What has to be said beside every figure of a program."""

    missing_values: tuple[str, ...] = ()
    """Values of the program are missing and others stand in their places."""
    others: tuple[str, ...] = ()
    """The program is computed as it stands."""


def normalise(module: Module, entry: str = "main") -> None:
    """Brings a module to normal form, in place: one function, no calls, no noise, simplified.

    What people have to know of it is left in the module for `take_notes`, and which arguments are
    donated for `take_donated`.

    Raises:
        ProgramError: the module has no function `entry`, or calls itself or Python, or is made for
            several devices, or is what XLA has made of a program.
    """
    with module.op.context, ir.Location.unknown():
        main = module.function(entry)
        missing, donated = put_values(module), [*_aliased(module), *_donated(main)]
        notes = ignored_shardings(module)
        _strip(module, main)
        inline_calls(module, main)
        for name, function in module.functions().items():
            if name != entry:
                function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        module.run("symbol-dce")
        expand(main)
        _decompose(module, main)
        check_operations(main)
        module.run("canonicalize", "cse", "symbol-dce")
        for name, said in ((_MISSING_VALUES, missing), (_NOTES, notes)):
            if said:
                strings = [ir.StringAttr.get(note) for note in said]
                module.op.operation.attributes[name] = ir.ArrayAttr.get(strings)
        if donated:
            module.op.operation.attributes[_DONATED] = ir.DenseI64ArrayAttr.get(donated)


def take_notes(module: Module) -> Notes:
    """What people have to know of a module in normal form, which has no notes from then on."""
    return Notes(_taken(module, _MISSING_VALUES), _taken(module, _NOTES))


def _taken(module: Module, name: str) -> tuple[str, ...]:
    """The strings of an attribute of a module, which is gone from then on."""
    attributes = module.op.operation.attributes
    if name not in attributes:
        return ()
    with module.op.context:
        found = tuple(ir.StringAttr(x).value for x in ir.ArrayAttr(attributes[name]))
        del attributes[name]
    return found


def take_donated(module: Module) -> tuple[int, ...]:
    """Positions of the donated arguments of a module in normal form, which forgets them."""
    attributes = module.op.operation.attributes
    if _DONATED not in attributes:
        return ()
    with module.op.context:
        donated = tuple(ir.DenseI64ArrayAttr(attributes[_DONATED]))
        del attributes[_DONATED]
    return donated


def _aliased(module: Module) -> list[int]:
    """Positions of the parameters of an HLO module that share memory with results."""
    attributes = module.op.operation.attributes
    if _ALIASES not in attributes:
        return []
    found = [ir.DictAttr(ir.DictAttr(x)["alias"]) for x in ir.ArrayAttr(attributes[_ALIASES])]
    whole = [x for x in found if not len(ir.DenseI64ArrayAttr(x["parameter_index"]))]
    return sorted({ir.IntegerAttr(x["parameter_number"]).value for x in whole})


def _donated(main: Any) -> list[int]:
    """Positions of the arguments of a function whose memory a caller gives away."""
    if "arg_attrs" not in main.attributes:
        return []
    found = enumerate(ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"]))
    return [k for k, attributes in found if any(name in attributes for name in _DONATION)]


def _strip(module: Module, main: Any) -> None:
    """Leaves out names, shardings and donation; of attributes only marks of constants stay."""
    attributes = module.op.operation.attributes
    for name in list(attributes):
        if name not in _MODULE_ATTRIBUTES and name != "sym_name":
            del attributes[name]
    if "arg_attrs" in main.attributes:
        marks = [
            CONSTANT_MARK in ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"])
        ]
        main.attributes["arg_attrs"] = _argument_marks(marks)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]


def _argument_marks(marks: Iterable[bool]) -> Any:
    unit = ir.UnitAttr.get()
    return ir.ArrayAttr.get([ir.DictAttr.get({CONSTANT_MARK: unit} if m else {}) for m in marks])


def name_entry(module: Module, entry: str = "main") -> None:
    """Gives the only public function of a module this name, unless one has it or calls that one."""
    functions = module.functions()
    public = [n for n, f in functions.items() if _is_public(f)]
    if entry in functions or len(public) != 1:
        return
    calls = operations_in(module.op.operation, lambda name: name in CALLS)
    if all(_callee(call) != public[0] for call in calls):
        with module.op.context:
            functions[public[0]].attributes["sym_name"] = ir.StringAttr.get(entry)


def _is_public(function: Any) -> bool:
    kept = function.attributes
    return "sym_visibility" not in kept or ir.StringAttr(kept["sym_visibility"]).value == "public"


CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
"""Operations that name a function, and the attribute that does."""
UNCOUNTED = {*CALLS, "func.func", "func.return"}
"""Operations that are gone once calls are inlined."""
MOST_CALLED = 100_000
"""Operations that all calls of a function may bring into it: where each function calls another one
twice, their number doubles at each level.  So many take about 5 s to inline and simplify."""


def inline_calls(module: Module, function: Any) -> None:
    """Puts the bodies of called functions and of composites in their places.

    jaxlib's own `inline` pass leaves every `func.call` alone.

    Raises:
        ProgramError: a function calls itself, has no body of one block, or calls too much.
    """
    functions = module.functions()
    _check_callees(functions, str(ir.StringAttr(function.attributes["sym_name"]).value))
    while calls := operations_in(function, lambda name: name in CALLS):
        for call in calls:
            _inline(call, functions)


def _check_callees(functions: dict[str, Any], entry: str) -> None:
    """Inlining takes for granted what this raises about; calls may be as deep as they like."""
    callees = {entry: _callees(functions, entry)}
    stack = {entry: iter(callees[entry])}
    sizes: dict[str, int] = {}
    """Operations of a function, calls inlined."""
    while stack:
        name, waiting = next(reversed(stack.items()))
        callee = next((c for c in waiting if c not in sizes), None)
        if callee is None:
            sizes[name] = _inlined_size(functions, name, [sizes[c] for c in callees[name]])
            del stack[name]
        elif callee in stack:
            raise ProgramError(
                f"expected calls without recursion, got {_route([*stack, callee])}; write loops "
                "as stablehlo.while"
            )
        else:
            callees[callee] = _callees(functions, callee)
            stack[callee] = iter(callees[callee])


def _route(names: Sequence[str]) -> str:
    """`main -> f -> g -> f`; the middle of a long one is left out."""
    shown = [*names[:10], "...", *names[-10:]] if len(names) > 21 else names
    return " -> ".join(shown)


def _callees(functions: dict[str, Any], name: str) -> list[str]:
    """The function that each call of a function names."""
    blocks = len(functions[name].regions[0].blocks)
    if blocks != 1:
        raise ProgramError(
            f"expected @{name} to have a body of one block, got {blocks} blocks; "
            "define it, and lower control flow to stablehlo.while, if or case"
        )
    return [_callee(call) for call in operations_in(functions[name], lambda n: n in CALLS)]


def _inlined_size(functions: dict[str, Any], name: str, called: Sequence[int]) -> int:
    if sum(called) > MOST_CALLED:
        raise ProgramError(
            f"expected calls of at most {MOST_CALLED:,} operations in @{name}, got "
            f"{sum(called):,} once they are inlined; call fewer functions, or write loops as "
            "stablehlo.while"
        )
    return len(operations_in(functions[name], lambda n: n not in UNCOUNTED)) + sum(called)


def _callee(call: Any) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes[CALLS[call.name]]).value)


def _inline(call: Any, functions: dict[str, Any]) -> None:
    with ir.InsertionPoint(call), call.location:
        kept = _kept_composite(call)
        if kept is not None:
            values = list(kept.results)
        else:
            callee = functions[_callee(call)]
            values = inlined_func_call(callee, list(call.operands))
    replace([call], list(call.results), values)


def _kept_composite(call: Any) -> Any:
    """`chlo.erf` for `stablehlo.composite "chlo.erf"`, the form in which jax.export writes it."""
    if call.name != "stablehlo.composite":
        return None
    name = ir.StringAttr(call.attributes["name"]).value
    if name not in KEPT:
        return None
    attributes: dict[str, Any] = {}
    if "composite_attributes" in call.attributes:
        options: Any = ir.DictAttr(call.attributes["composite_attributes"])
        attributes = {option.name: option.attr for option in options}
    if "largest" in attributes and not ir.BoolAttr(attributes.pop("largest")).value:
        return None
    return ir.Operation.create(
        name, [r.type for r in call.results], list(call.operands), attributes
    )


def _decompose(module: Module, main: Any) -> None:
    """Expands chlo and deprecated operations, but for those that XLA takes as they are.

    Stand-ins hide the kept ones from the pass.
    """
    held: dict[str, Any] = {}
    for i, operation in enumerate(operations_in(main, lambda n: n in KEPT)):
        target = f"{_STAND_IN}{i}"
        held[target] = (operation.name, {n: operation.attributes[n] for n in operation.attributes})
        with ir.InsertionPoint(operation), operation.location:
            types = [r.type for r in operation.results]
            operands = list(operation.operands)
            stand_in = stablehlo.CustomCallOp(types, operands, call_target_name=target)
        replace([operation], list(operation.results), list(stand_in.results))
    module.run(f"func.func(chlo-legalize-to-stablehlo,{_DEPRECATED})")
    for call in operations_in(main, lambda n: n == "stablehlo.custom_call"):
        target = ir.StringAttr(call.attributes["call_target_name"]).value
        if target in held:
            name, attributes = held[target]
            with ir.InsertionPoint(call), call.location:
                types = [r.type for r in call.results]
                back = ir.Operation.create(name, types, list(call.operands), attributes)
            replace([call], list(call.results), list(back.results))


def parse_beside(module: Module, text: str) -> tuple[Module, Any]:
    """A module in the same context, whose functions can be copied here, and its inlined @main."""
    with module.op.context, ir.Location.unknown():
        try:
            other = Module(ir.Module.parse(text))
        except ir.MLIRError as error:
            reason = " ".join(str(error).split())[:500]
            raise ProgramError(
                f"expected a replacement that MLIR reads, got: {reason}; mend its text"
            ) from error
        main = other.function("main")
        inline_calls(other, main)
        return other, main


def signature(function: Any) -> tuple[list[Any], list[Any]]:
    """Argument and result types of a function."""
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return list(kind.inputs), list(kind.results)


def add_arguments(function: Any, types: Sequence[Any]) -> list[Any]:
    """Appends arguments to a function."""
    with function.context, ir.Location.unknown() as location:
        inputs, results = signature(function)
        kind = ir.FunctionType.get([*inputs, *types], results)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "arg_attrs" in function.attributes:
            old = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
            new = [ir.DictAttr.get({}) for _ in types]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([*old, *new])
        block = function.regions[0].blocks[0]
        return [block.add_argument(t, location) for t in types]


def drop_arguments(function: Any, positions: Collection[int]) -> None:
    """Takes away arguments of a function that nothing reads."""
    with function.context, ir.Location.unknown():
        inputs, results = signature(function)
        kept = [i for i in range(len(inputs)) if i not in positions]
        kind = ir.FunctionType.get([inputs[i] for i in kept], results)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "arg_attrs" in function.attributes:
            old = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([old[i] for i in kept])
        for position in sorted(positions, reverse=True):
            function.regions[0].blocks[0].erase_argument(position)


def replace_group(
    members: Sequence[Any], results: Sequence[Any], function: Any, arguments: Sequence[Any]
) -> list[Any]:
    """Puts a function's body in the place of a group of operations of one block; gives the new
    results.

    The block may be left in an order that is not topological: `sort_block` mends it.
    """
    with function.context, ir.Location.unknown(), ir.InsertionPoint(members[-1]):
        new = list(inlined_func_call(function, list(arguments)))
    replace(members, results, new)
    return new


def copied(operations: Sequence[Any]) -> dict[Any, Any]:
    """Copies operations to where they stand; gives each new result by the old one."""
    found: dict[Any, Any] = {}
    for operation in operations:
        with ir.InsertionPoint(operation):
            copy = operation.clone()
        for k, operand in enumerate(operation.operands):
            copy.operands[k] = found.get(operand, operand)
        found |= dict(zip(operation.results, copy.results, strict=True))
    return found


def sort_block(block: Any) -> None:
    """Orders a block so that values come before their uses; what need not move stays in order."""
    operations = [o.operation for o in block.operations]
    place = {o: i for i, o in enumerate(operations)}
    waiting = [0] * len(operations)
    users: list[list[int]] = [[] for _ in operations]
    for i, operation in enumerate(operations):
        for j in {place[d] for d in dependences(operation) if d in place}:
            users[j].append(i)
            waiting[i] += 1
    ready = [i for i, n in enumerate(waiting) if n == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) != len(operations):
        raise ProgramError(
            "expected sites that do not wait for each other, got a cycle; choose fewer of them"
        )
    for previous, following in pairwise(order):
        operations[following].move_after(operations[previous])


def dependences(operation: Any) -> Iterable[Any]:
    """The operations whose results an operation reads, also from inside its regions."""
    for inner in operations_in(operation, lambda name: True):
        for value in inner.operands:
            if not isinstance(value.owner, ir.Block):
                yield value.owner.operation

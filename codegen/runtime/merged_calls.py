"""Calls of several kernels that follow each other, made as one call of XLA's.

Each call costs XLA a microsecond, and each argument of a program JAX and XLA some three, as caches
are full of something else when a call begins.  So calls that follow each other are one, in which
what one kernel writes and only kernels of the same call read lies in memory that they share, and
constants of kernels are parts of few arguments.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.sequence import Kind, Place, Step, keys_of, words_of
from hlotune.codegen.runtime.shared_memory import Life, laid_out
from hlotune.hlo.mlir.call_runs import runs
from hlotune.hlo.mlir.custom_calls import (
    aliases_of,
    config_of,
    is_call_of,
    own_results,
    row_major,
    scratch_bytes,
)
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.rewrite import add_arguments, drop_arguments, sort_block
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.schedules.large_pages import joined

Bytes = NDArray[np.uint8]
Parts = Mapping[Any, tuple[Any, int]]
"""Arguments whose bytes lie in another one, and where they begin there."""
LEAST_APART_BYTES = 4 << 20
"""Constants of so many bytes are not copied, and stay arguments of their own."""


def merge_calls(module: Module, hidden: Sequence[Bytes] = ()) -> tuple[Bytes, ...]:
    """Makes one call of each run of calls of kernels, in all blocks of a module.

    Args:
        hidden: values of the last arguments of `@main`, packed constants of kernels.

    Returns:
        The values of the last arguments from then on: small constants that kernels alone read are
        one array.
    """
    with module.op.context, ir.Location.unknown():
        function = module.function("main")
        block = function.regions[0].blocks[0]
        own = len(block.arguments) - len(hidden)
        small = [own + k for k, value in enumerate(hidden) if value.nbytes < LEAST_APART_BYTES]
        chosen = [i for i in small if _is_for_kernels(block.arguments[i])]
        array, offsets = joined([hidden[i - own] for i in chosen])
        whole = add_arguments(function, [_bytes(array.nbytes)] if chosen else [])
        found = zip(chosen, offsets, strict=True)
        parts = {block.arguments[i]: (whole[0], at) for i, at in found}
        is_alone = _is_alone(block)
        for calling in _blocks(module):
            _merge_in(calling, parts, is_alone=is_alone)
        drop_arguments(function, chosen)
        left = [value for k, value in enumerate(hidden) if own + k not in chosen]
        return (*left, array) if chosen else tuple(left)


LITTLE = 4096
"""Elements of arrays with which XLA computes in the thread that calls kernels, for microseconds."""
_FREE = ("stablehlo.constant", "stablehlo.reshape", "func.return")
_LONG = ("stablehlo.custom_call", "stablehlo.cholesky", "stablehlo.fft")


def _is_alone(block: Any) -> bool:
    """Whether XLA has so little to compute in a program that no other thread of it wakes."""
    return all(_is_ours(o.operation) or _is_little(o.operation) for o in block.operations)


def _is_little(operation: Any) -> bool:
    if operation.name in _FREE:
        return True
    if len(operation.regions) and operation.name != "stablehlo.reduce":
        return False
    arrays = (tensor_type(v.type) for v in (*operation.operands, *operation.results))
    return operation.name not in _LONG and all(prod(a.shape) <= LITTLE for a in arrays)


def _is_for_kernels(argument: Any) -> bool:
    readers = [use.owner.operation for use in argument.uses]
    return bool(readers) and all(map(_is_ours, readers))


def _bytes(count: int) -> Any:
    return ir.RankedTensorType.get([count], ir.IntegerType.get_unsigned(8))


def _merge_in(block: Any, parts: Parts, *, is_alone: bool) -> None:
    """Merges the calls of a block; one that reads parts is made one that takes them so."""
    operations = [o.operation for o in block.operations]
    found = [_Run(tuple(r), parts, is_alone) for r in runs(operations, _is_ours, _can_wait)]
    chosen = [run for run in found if len(run.calls) > 1 or run.reads_parts]
    for run in chosen:
        _merge(run)
    if chosen:
        sort_block(block)


def _blocks(module: Module) -> list[Any]:
    """The blocks in which kernels are called."""
    found = list[Any]()
    for call in operations_in(module.op.operation, lambda n: n == "stablehlo.custom_call"):
        if _is_ours(call) and call.operation.block not in found:
            found.append(call.operation.block)
    return found


def _can_wait(call: Any) -> bool:
    """Whether a call is better made late: its results take more memory than what it reads of other
    operations, which it would keep, or it writes over an argument, which XLA may read as well."""
    read = (v for v in call.operands if not isinstance(v.owner, ir.Block))
    kept = sum(tensor_type(v.type).bytes for v in read)
    return bool(aliases_of(call)) or kept < sum(
        tensor_type(v.type).bytes for v in own_results(call)
    )


def _is_ours(operation: Any) -> bool:
    return is_call_of(operation, TARGET) and "key" in config_of(operation)


@dataclass(frozen=True)
class _Run:
    """Calls that become one, and reshapes of what they give."""

    operations: tuple[Any, ...]
    parts: Parts
    is_alone: bool
    """Whether XLA has next to nothing to compute in the program."""

    @property
    def reads_parts(self) -> bool:
        return any(v in self.parts for call in self.calls for v in call.operands)

    @cached_property
    def calls(self) -> list[Any]:
        return [o for o in self.operations if _is_ours(o)]

    @cached_property
    def number(self) -> Mapping[Any, int]:
        return {c: i for i, c in enumerate(self.calls)}

    @cached_property
    def last_reader(self) -> Mapping[Any, int]:
        """The number of the last call that reads a value, of each that is read."""
        return {_source(v): i for c, i in self.number.items() for v in c.operands}

    @cached_property
    def reshapes(self) -> Mapping[Any, Any]:
        """What each reshape of the run gives, and of which result of a call it is one."""
        return {
            o.results[0]: _source(o.results[0]) for o in self.operations if o not in self.number
        }

    @cached_property
    def places(self) -> "_Places":
        return _Places.of(self)

    def readers(self, value: Any) -> Iterator[int | None]:
        """The numbers of the calls that read a value or a reshape of it; None for each other."""
        for use in value.uses:
            reader = use.owner.operation
            if reader in self.number:
                yield self.number[reader]
            elif reader.results and reader.results[0] in self.reshapes:
                yield from self.readers(reader.results[0])
            else:
                yield None

    def is_read_outside(self, value: Any) -> bool:
        return None in self.readers(value)


def _source(value: Any) -> Any:
    """The value of which another one is a reshape: it lies in the same memory."""
    while not isinstance(value.owner, ir.Block) and value.owner.name == "stablehlo.reshape":
        value = value.owner.operands[0]
    return value


@dataclass(frozen=True)
class _Places:
    """Where all lies that the calls of a run read and write."""

    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    """The values that are read outside."""
    known: Mapping[Any, Place]
    scratch: Mapping[int, int]
    """By the number of the call, where its scratch begins in the shared memory."""
    shared_bytes: int

    @staticmethod
    def of(run: _Run) -> "_Places":
        made = [value for call in run.calls for value in own_results(call)]
        scratch = {i: n for c, i in run.number.items() if (n := scratch_bytes(c))}
        own = {run.calls[i].results[-1]: i for i in scratch}
        operands = _operands(run, {*made, *own})
        # that scratch is read says which call comes first, and nobody looks at it
        results = [v for v in (*made, *own) if run.is_read_outside(v)]
        shared = [v for v in made if not run.is_read_outside(v)]
        lives = [*(_life(run, v) for v in shared), *(Life(n, i, i) for i, n in scratch.items())]
        offsets, size = laid_out(lives)
        known = {v: Place(Kind.OPERAND, i) for i, v in enumerate(operands)}
        known |= {v: Place(Kind.RESULT, i) for i, v in enumerate(results)}
        known |= {v: Place(Kind.SHARED, at) for v, at in zip(shared, offsets, strict=False)}
        known |= {
            v: Place(Kind.PART, known[whole].at, at)
            for v, (whole, at) in run.parts.items()
            if whole in known
        }
        begins = dict(zip(scratch, offsets[len(shared) :], strict=True))
        inside = {v: i for v, i in own.items() if v not in known}
        known |= {v: Place(Kind.SHARED, begins[i]) for v, i in inside.items()}
        return _Places(tuple(operands), tuple(results), known, begins, size)


def _operands(run: _Run, made: set[Any]) -> list[Any]:
    """What the calls read from outside, each once."""
    read = [_source(v) for call in run.calls for v in call.operands]
    whole = dict.fromkeys(run.parts[v][0] if v in run.parts else v for v in read)
    return [v for v in whole if v not in made]


def _life(run: _Run, value: Any) -> Life:
    first = run.number[value.owner.operation]
    last = max((k for k in run.readers(value) if k is not None), default=first)
    return Life(max(1, tensor_type(value.type).bytes), first, last)


def _merge(run: _Run) -> None:
    """Puts one call in the place of those of a run; its block may be left out of order."""
    merged = _merged(run, run.places)
    new = dict(zip(run.places.results, merged.results, strict=False))
    with ir.InsertionPoint(run.operations[-1]):
        for value, source in run.reshapes.items():
            if run.is_read_outside(value):
                new[value] = stablehlo.ReshapeOp(value.type, new[source]).result
    replace(run.operations, list(new), list(new.values()))


def _merged(run: _Run, places: _Places) -> Any:
    first, steps = run.calls[0], [_step(run, call) for call in run.calls]
    types = [v.type for v in places.results]
    if places.shared_bytes:
        types.append(_bytes(places.shared_bytes))
    attributes = {
        "api_version": first.attributes["api_version"],
        "call_target_name": first.attributes["call_target_name"],
        "backend_config": _config(steps, places.shared_bytes, is_alone=run.is_alone),
        "operand_layouts": ir.ArrayAttr.get([row_major(v.type) for v in places.operands]),
        "result_layouts": ir.ArrayAttr.get([row_major(t) for t in types]),
    }
    if aliases := _aliases(run, len(types)):
        attributes["output_operand_aliases"] = ir.ArrayAttr.get(aliases)
    with ir.InsertionPoint(run.operations[-1]):
        return ir.Operation.create(first.name, types, list(places.operands), attributes)


def _config(steps: Sequence[Step], shared_bytes: int, *, is_alone: bool) -> Any:
    whole = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get(
        {
            "keys": ir.StringAttr.get(keys_of(steps)),
            "words": ir.StringAttr.get(words_of(steps)),
            "scratch_bytes": ir.IntegerAttr.get(whole, shared_bytes),
            "alone": ir.IntegerAttr.get(whole, int(is_alone)),
        }
    )


def _step(run: _Run, call: Any) -> Step:
    known, config = run.places.known, config_of(call)
    return Step(
        key=str(config["key"]),
        arguments=tuple(known[_source(v)] for v in call.operands),
        results=tuple(known[v] for v in own_results(call)),
        scratch_bytes=scratch_bytes(call),
        scratch_at=run.places.scratch.get(run.number[call], 0),
        has_stacks=bool(config.get("stacks")),
    )


def _aliases(run: _Run, results: int) -> list[Any]:
    """Which results lie in the memory of which operands.

    Where a later call of the run may read the operand none does: XLA cannot copy it in between.
    """
    found = list[Any]()
    for call, number in run.number.items():
        for result, operand in aliases_of(call):
            written, value = call.results[result], _source(call.operands[operand])
            place, over = run.places.known[written], run.places.known[value]
            later = run.last_reader.get(value, 0) > number or _has_other_name(run, value, number)
            if place.kind is Kind.RESULT and over.kind is Kind.OPERAND and not later:
                found.append(
                    stablehlo.OutputOperandAlias.get([place.at] if results > 1 else [], over.at, [])
                )
    return found


def _has_other_name(run: _Run, value: Any, number: int) -> bool:
    """Whether a later call reads what an operation gives that XLA may find to be the same array, as
    one behind a barrier: it is as large.
    """
    size = tensor_type(value.type).bytes
    return any(
        last > number
        and not isinstance(v.owner, ir.Block)
        and run.places.known[v].kind is Kind.OPERAND
        and tensor_type(v.type).bytes == size
        for v, last in run.last_reader.items()
        if v in run.places.known
    )

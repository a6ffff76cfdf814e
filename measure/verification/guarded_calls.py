"""What a kernel gives when it is called: on guarded and poisoned buffers where it is machine code.

It may be wrong in any way: what reads or writes outside of its buffers is seen or ends the
process, and the parent reports the crash.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.backend import Signature
from hlotune.codegen.backends import backend_named
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.hosts import threaded
from hlotune.codegen.runtime.loader import KERNEL, Host, Loaded
from hlotune.codegen.runtime.prepacking import prepack
from hlotune.hlo.graph import Graph, numpy_dtype
from hlotune.measure.verification.buffers import (
    MOST_KEPT_BYTES,
    POISON,
    POISONS,
    Guarded,
    Pages,
    Placement,
    rounded,
)  # fmt: skip
from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.inputs import InputKind
from hlotune.measure.verification.races import Halves, InHalves
from hlotune.measure.verification.rounds import Round
from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.errors import WrongResult

Content = NDArray[np.uint8] | Guarded
"""Bytes of an argument, or the one buffer that has them."""


def results_of(
    loaded: Any, built: Built, case: Case, graph: Graph, round_: Round, pages: Pages
) -> list[NDArray[np.generic]]:
    """What the kernel gives; raises WrongResult where it gives no results, or several.

    Machine code in this process is watched as it runs; other code runs where nobody looks.
    """
    if isinstance(loaded, Loaded):
        return _watched(loaded, case, graph, round_, pages)
    return _called_twice(loaded, built, case, graph, round_.kind)


def _called_twice(
    loaded: Any, built: Built, case: Case, graph: Graph, kind: InputKind
) -> list[NDArray[np.generic]]:
    """The results of two calls by the kernel's backend.

    Raises WrongResult where they differ, or are not of the kernel's types.
    """
    signature = Signature(tuple(graph.argument_types), tuple(graph.result_types))
    call = backend_named(built.backend).call
    first, again = (call(loaded, signature, case.values) for _ in range(2))
    wanted = [(t.shape, numpy_dtype(t.dtype)) for t in graph.result_types]
    got = [(x.shape, x.dtype) for x in first]
    if got != wanted:
        raise WrongResult(f"expected results of shapes and types {wanted}, got {got}")
    for number, (a, b) in enumerate(zip(first, again, strict=True)):
        if a.tobytes() != b.tobytes():
            raise WrongResult(
                f"expected the same bits from every call, got others of result {number} with "
                f"{kind} inputs"
            )
    return first


def _watched(
    loaded: Loaded, case: Case, graph: Graph, round_: Round, pages: Pages
) -> list[NDArray[np.generic]]:
    """What all hosts give.  Raises WrongResult where they differ, or a buffer is damaged.

    They lie in buffers of the pages, which lose what they held before.
    """
    pages.release()
    contents = _contents(loaded, case, round_.placement, pages)
    arguments = [_buffer(c, round_.placement, pages) for c in contents]
    before = [_checksum(c) for c in contents]
    first: list[Guarded] | None = None
    for host, poison in zip(round_.hosts(), cycle(POISONS), strict=False):
        outputs = _called(loaded, arguments, graph, round_.placement, host, pages, poison)
        first = outputs if first is None else first
        _check_alike(first, outputs, graph, round_.kind)
    assert first is not None, "a round has a host"
    for position, (buffer, content) in enumerate(zip(arguments, contents, strict=True)):
        same = isinstance(content, Guarded) or np.array_equal(buffer.data, content)
        if not same or _checksum(content) != before[position]:
            raise WrongResult(f"expected argument {position} to be left alone, got it changed")
    if round_.over_arguments and loaded.built.in_place:
        for host in round_.hosts():
            for buffer, content in zip(arguments, contents, strict=True):
                if not isinstance(content, Guarded):  # nothing is written over what is packed
                    buffer.data[...] = content
            _check_over_arguments(loaded, arguments, first, host, pages)
    types = graph.result_types
    return [o.array(t.shape, numpy_dtype(t.dtype)) for o, t in zip(first, types, strict=True)]


def _check_over_arguments(
    loaded: Loaded,
    arguments: Sequence[Guarded],
    first: Sequence[Guarded],
    host: Host | InHalves,
    pages: Pages,
) -> None:
    """Raises WrongResult where results over arguments are others than those beside them.

    As many results lie over arguments as may at the same time; the arguments are lost.
    """
    over = dict[int, int]()
    for result, argument in loaded.built.in_place:
        if result not in over and argument not in over.values():
            over[result] = argument
    assert isinstance(host, Host), "halves of a loop are run on copies"
    outputs = [
        arguments[over[r]] if r in over else pages.guarded(x.bytes, "behind")
        for r, x in enumerate(first)
    ]
    scratch = pages.guarded(rounded(loaded.built.scratch_bytes), "behind")
    into, out = ([x.address for x in buffers] for buffers in (arguments, outputs))
    loaded.call(KERNEL, into, out, scratch.address, host)
    for result, argument in over.items():
        if not np.array_equal(outputs[result].data, first[result].data):
            raise WrongResult(
                f"expected the same bits of result {result} written over argument {argument} as "
                "written beside it, got others; an element is read after it was overwritten"
            )


def _contents(loaded: Loaded, case: Case, placement: Placement, pages: Pages) -> list[Content]:
    """The bytes of the arguments; of a packed one, its packed form."""
    made: list[Guarded] = []

    def buffer(size: int) -> Guarded:
        made.append(pages.guarded(size, placement))
        return made[-1]

    packed = prepack(loaded, dict(enumerate(case.values)), threaded(loaded.built.threads), buffer)
    plain = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in case.values]
    contents: list[Content] = [packed.get(n, data) for n, data in enumerate(plain)]
    large = [g for g in made if g.bytes > MOST_KEPT_BYTES]
    return [_whole(c, large) for c in contents]


def _whole(content: Content, large: Sequence[Guarded]) -> Content:
    """The large buffer that some bytes are those of, or the bytes."""
    if isinstance(content, Guarded):
        return content
    address, size = content.ctypes.data, content.size
    return next((g for g in large if (g.address, g.bytes) == (address, size)), content)


def _buffer(content: Content, placement: Placement, pages: Pages) -> Guarded:
    """A copy for the kernel; large ones stand for themselves."""
    if isinstance(content, Guarded):
        return content
    buffer = pages.guarded(content.size, placement)
    buffer.data[...] = content
    return buffer


def _checksum(content: Content) -> int:
    """The sum of a large buffer, of which there is no copy to compare it with; 0 for other
    contents.
    """
    if not isinstance(content, Guarded):
        return 0
    whole = content.data[: content.bytes // 8 * 8].view(np.uint64)
    return int(np.add.reduce(whole)) + int(content.data[whole.nbytes :].sum())


def _called(
    loaded: Loaded,
    arguments: Sequence[Guarded],
    graph: Graph,
    placement: Placement,
    host: Host | InHalves,
    pages: Pages,
    poison: int,
) -> list[Guarded]:
    """The results of one call; of integers they are poisoned with a byte of this call.

    Raises WrongResult for a bad status, a write beside a buffer, bytes that two threads would
    write, or a floating-point element left unwritten.
    """
    outputs = [
        pages.guarded(t.bytes, placement, POISON if is_float(t.dtype) else poison)
        for t in graph.result_types
    ]
    scratch = pages.guarded(rounded(loaded.built.scratch_bytes), placement, poison)
    halves = None
    if isinstance(host, InHalves):
        halves = Halves([x.memory for x in (*outputs, scratch)], host.most_bytes)
        host = halves.host
    into, out = ([x.address for x in buffers] for buffers in (arguments, outputs))
    status = loaded.call(KERNEL, into, out, scratch.address, host)
    if status:
        raise WrongResult(f"expected status 0, got {status}; the kernel gave up")
    _check_intact({"argument": arguments, "result": outputs, "scratch": [scratch]})
    if halves is not None:
        halves.check()
    for number, (output, tensor) in enumerate(zip(outputs, graph.result_types, strict=True)):
        if is_float(tensor.dtype):
            # The poison is a NaN that no arithmetic makes.
            _check_written(output.unwritten(BYTES[tensor.dtype]), number)
    return outputs


def _check_intact(buffers: Mapping[str, Sequence[Guarded]]) -> None:
    for what, those in buffers.items():
        for number, buffer in enumerate(those):
            if not buffer.intact:
                raise WrongResult(
                    f"expected no write outside of {what} {number} ({buffer.bytes} bytes), "
                    "got one beside it"
                )


def _check_alike(
    first: Sequence[Guarded], again: Sequence[Guarded], graph: Graph, kind: InputKind
) -> None:
    """Raises WrongResult where two calls differ: integers that neither wrote are two poisons."""
    for number, (a, b) in enumerate(zip(first, again, strict=True)):
        if np.array_equal(a.data, b.data):
            continue
        size = BYTES[graph.result_types[number].dtype]
        _check_written(a.unwritten(size) & b.unwritten(size), number)
        raise WrongResult(
            "expected the same bits for every number of threads and order of tasks, got others "
            f"with {kind} inputs; tasks of this schedule share memory, sum in their own order, or "
            "read scratch that nobody wrote"
        )


def _check_written(unwritten: NDArray[np.bool_], number: int) -> None:
    left = int(np.count_nonzero(unwritten))
    if left:
        raise WrongResult(
            f"expected every element of result {number} to be written with a number, "
            f"got {left} of {unwritten.size} unwritten or made of unwritten scratch"
        )

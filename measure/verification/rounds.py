"""Which inputs a kernel is verified with, and on which hosts: few at first, more for winners."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.hosts import serial, shuffled, threaded
from hlotune.codegen.runtime.loader import Host
from hlotune.hlo.graph import Graph
from hlotune.measure.verification.buffers import Placement
from hlotune.measure.verification.inputs import InputKind, ordered_kinds
from hlotune.measure.verification.races import InHalves
from hlotune.measure.verification.references import References

WATCHED_BYTES = 256 << 20
"""Most that is copied in one call to find races in it."""
LARGE_BYTES = 64 << 20
"""Constants of more than so much are verified with fewer sets."""
LARGE_OPERANDS_BYTES = 128 << 20
"""So are kernels whose arguments are more than so much together."""
LONG_FLOPS = 1 << 31
"""So are those of more arithmetic than this: one call on one thread takes some 20 ms."""
WATCHED_AT_FIRST_BYTES = 1 << 20
"""Where that is not thorough: copies take longer than the call of a good kernel."""
_SHUFFLE_SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Round:
    """Inputs, where the guards touch, and hosts: all must give the bits of the first."""

    kind: InputKind
    seed: int
    placement: Placement
    hosts: Callable[[], tuple[Host | InHalves, ...]]
    """Made where they are needed: code that runs elsewhere has none."""
    over_arguments: bool = False
    """Whether one call more has its results over its arguments, where it may."""


def more_kinds(references: References, outputs: int) -> tuple[InputKind, ...]:
    """Inputs that show what may hide from small integers and normal numbers."""
    few: tuple[InputKind, ...] = ("few",) if _may_hide(references, outputs) else ()
    whole: tuple[InputKind, ...] = ("whole",) if references.compares_more_as_whole else ()
    wide: tuple[InputKind, ...] = ("tf32",) if references.compares_wide_operands else ()
    return few + whole + wide + ordered_kinds(references.graph)


def _may_hide(references: References, outputs: int) -> bool:
    """Whether a lost term may hide behind the bound of tiles: its sums go through what rounds."""
    return outputs > 0 and not references.case("integers").is_exact


def is_large(built: Built, graph: Graph) -> bool:
    """Whether each set of inputs takes long: to pack constants, to draw operands, or to call."""
    operands = sum(graph.types[a].bytes for a in graph.arguments)
    long = built.flops >= LONG_FLOPS or operands > LARGE_OPERANDS_BYTES
    return long or constant_bytes(graph) > LARGE_BYTES


def constant_bytes(graph: Graph) -> int:
    """Bytes of the arguments that are constants of a program."""
    return sum(graph.types[a].bytes for a in graph.constants)


def rounds(
    threads: int, thorough: bool, more: Sequence[InputKind], *, is_large: bool
) -> Iterator[Round]:
    """Thorough ones draw three sets more; of large kernels one, as each takes long."""

    def halves() -> tuple[Host | InHalves]:
        watched = WATCHED_BYTES if thorough else WATCHED_AT_FIRST_BYTES
        return (InHalves(watched) if threads > 1 else serial(),)

    @cache
    def mixed() -> Host:
        return shuffled(_SHUFFLE_SEED, threads)

    def every() -> tuple[Host, ...]:
        return serial(), mixed(), threaded(threads)

    yield Round("integers", 0, "behind", halves)
    if thorough and is_large:
        yield Round("normal", 0, "before", every, over_arguments=True)
    else:
        yield Round("normal", 0, "before", lambda: (threaded(threads), mixed()))
    for kind in more:
        yield Round(kind, 0, "behind", lambda: (serial(),))
    if thorough and is_large:
        yield Round("special", 2, "behind", every)
    elif thorough:
        yield Round("normal", 1, "behind", every, over_arguments=True)
        yield Round("special", 2, "before", every)
        yield Round("integers", 3, "behind", every)

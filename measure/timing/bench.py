"""One kernel on the device: its default and its candidates, as subjects to be timed alike.

A candidate is called as XLA calls it inside a program: through the one custom call, on XLA's
buffers and pool.  The program is compiled once for each *form* of call (scratch size class,
packed operands); candidates take turns in its slot, and so does the empty kernel that shows what
the call itself costs.

In the cache mode `model` the same stands in the caches before every call, whoever is called:

- Constants are cold.  As operands they come from a ring of copies; before a program that has them
  in its text, as many bytes are read as the ring's other copies have.  A ring has at most 256
  copies, so constants below a 256th of it are in the last cache, in both forms.
- All other operands are warm: every thread reads them, up to the size of the last cache.  That
  holds for weights too where a program takes them as arguments: a kernel cannot tell them from
  activations.
- Results are written to lines that every thread has just read.

What is left to the disadvantage of constants in the text: the flood may push the program's code
out of the inner caches.  The mode `warm` calls again and again on the same buffers.

The dispatcher moves what is large into pages of 2 MiB, in early calls of a program.  Here calls of
nothing do that outside every clock, when the first subject of a form is made, and both sides have
what comes of it: arguments are the same buffers for the default and all candidates, each result
takes the memory of the one before it, whosever that was, and copies of constants lie in such pages
from the start.  So no kernel wins by its pages alone; against a default that runs by itself, whose
arguments nobody moves, it may.  Constants in the default's text lie where XLA puts them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, repeat
from pathlib import Path
from string import Template

import jax
import numpy as np

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.call_module import replacement
from hlotune.codegen.runtime.dispatcher import bind, bind_empty, crew_rests
from hlotune.codegen.runtime.hosts import threaded
from hlotune.codegen.runtime.loader import Loaded, load
from hlotune.codegen.runtime.moved_pages import MOVING_CALLS
from hlotune.codegen.runtime.prepacking import prepack
from hlotune.codegen.runtime.support import machine_code
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.graph import Graph, TensorType
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.run_queue import RunQueue, run_queue
from hlotune.measure.timing.cold_operands import Arena, copies, ring_bytes
from hlotune.measure.timing.held_threads import HeldThreads, held_threads
from hlotune.measure.timing.retaken import Retaken, RunUp, nothing, run_up
from hlotune.measure.timing.timing import Clock, Subject
from hlotune.measure.timing.xla import Program, baked_text, compiled, default_text, on_device
from hlotune.measure.trial import CacheMode
from hlotune.measure.trial import Clock as ClockName
from hlotune.measure.verification.inputs import Array, draw
from hlotune.schedules.targets.cpu import CpuTarget

MOST_BAKED_BYTES = 64 << 20
"""The default is tried with constants in its text up to this size: compiling takes long beyond."""

_MOST_RESULT_BYTES = 2 << 20
"""So many bytes of each result are read before a call."""
_SMALLEST_SCRATCH = 4096
_LONGEST_REST_S = 1e-3
_DEFAULT = "default"
_keys = count()

Form = tuple[int, tuple[tuple[int, int], ...]]
"""What a program is compiled for: bytes of scratch, (argument, bytes) of packed operands."""


@dataclass(eq=False)
class Bench:
    """What belongs to one kernel on the device: made once, used for all of its candidates."""

    kernel: Kernel
    target: CpuTarget
    cache: CacheMode
    graph: Graph = field(init=False)
    values: tuple[Array, ...] = field(init=False)
    _arrays: list[jax.Array] = field(init=False)
    _forms: dict[Form, tuple[str, Program]] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)
    """Keys of the forms whose early calls, which move memory, have been made."""
    last: list[jax.Array] = field(default_factory=list)
    """Results of the last call: the next call gets their memory."""
    _between: Program | None = None
    """Reads the last results, then the operands that are no constants."""
    _queue: RunQueue = field(init=False)
    _held: HeldThreads = field(init=False)
    _arenas: dict[str, Arena] = field(default_factory=dict)
    """By place: what is in one does not move what is in another."""
    _shared: Iterator[list[jax.Array]] | None = None
    """The ring of the constants as they are: for the default and candidates that pack nothing."""

    def __post_init__(self) -> None:
        self.graph = graph_of(self.kernel)
        self.values = draw(self.graph, "normal", np.random.default_rng(0))
        self._arrays = [on_device(v) for v in self.values]
        self._queue = run_queue(self.target.threads)
        self._held = held_threads(self.target)
        if self.cache == "model":
            self._between = self._reader_between()

    def _reader_between(self) -> Program:
        results = [(t, _MOST_RESULT_BYTES) for t in self.graph.result_types]
        warm = [(t, self.target.l3_bytes) for t in self._warm_types]
        return _reader([*results, *warm], self.target)

    @property
    def constants(self) -> tuple[int, ...]:
        """Positions of the arguments whose values are known when a program is loaded."""
        return tuple(i for i, a in enumerate(self.graph.arguments) if a in self.graph.constants)

    @property
    def _warm(self) -> list[jax.Array]:
        """The operands that are no constants."""
        return [a for i, a in enumerate(self._arrays) if i not in self.constants]

    @property
    def _warm_types(self) -> list[TensorType]:
        types = self.graph.argument_types
        return [t for i, t in enumerate(types) if i not in self.constants]

    def candidate(
        self,
        built: Built,
        place: str = "candidate",
        loaded: Loaded | None = None,
        clock: ClockName = "kernel",
    ) -> Subject:
        """A built kernel, `loaded` where it is linked already.

        Subjects that are timed in turns need places of their own.
        """
        loaded = loaded or load(built)
        scratch = size_class(built.scratch_bytes)
        form = scratch, tuple(sorted((p.argument, p.bytes) for p in built.packed))
        key, program = self._program(form)
        operands = self._operands(loaded, place)
        is_serial = built.threads == 1
        held = held_threads(replace(self.target, threads=1)) if is_serial else self._held
        empty = self._empty(key, program, self._first(key, program, operands), held.begin)

        def ready() -> None:
            """Bound, and its threads awake."""
            bind(key, loaded)
            held.begin()

        if clock == "kernel":
            return Subject(held.clock(self._clock(program, operands, ready)), empty)

        def run() -> None:
            _wait(program(next(operands)))

        running = RunUp(run)

        def before() -> bool:
            bind(key, loaded)
            return running()

        def part() -> bool:
            bind(key, loaded)
            return run_up(run)

        retaken = Retaken(self._queue, before, part, settle=run)
        return Subject(self._retaken(retaken, program, operands, then=held.begin), empty)

    def default(
        self, clock: ClockName = "kernel", *, is_long: bool = False, baked: bool = True
    ) -> tuple[Subject, ...]:
        """XLA's own kernel in its forms: constants as operands, constants in its text.

        `is_long` says that its calls are known to take so long that they need no run-up.  Without
        `baked` there is the first form alone.
        """
        key, program = self._program((0, ()))
        operands = self._cold(self.constants, [self.values[i] for i in self.constants], _DEFAULT)
        empty = self._empty(key, program, self._first(key, program, operands))
        own = self._own

        def before() -> bool:
            _let_crew_rest()
            return clock == "call" and running()

        def run() -> None:
            _wait(own(next(operands)))

        running = RunUp(run, is_long=is_long)
        settle = run if clock == "call" else nothing
        retaken = Retaken(self._queue, before, lambda: run_up(run), settle)
        subjects = [Subject(self._retaken(retaken, own, operands), empty)]
        in_text = self._baked(retaken) if baked else None
        return (*subjects, Subject(in_text, empty)) if in_text is not None else tuple(subjects)

    @cached_property
    def _own(self) -> Program:
        """XLA's own kernel, its constants as operands."""
        return compiled(default_text(self.kernel))

    def own_results(self, values: Sequence[Array]) -> list[Array]:
        """What XLA's own kernel makes of some arguments."""
        return [np.asarray(x) for x in self._own([on_device(v) for v in values])]

    def _retaken(
        self,
        retaken: Retaken,
        program: Program,
        operands: Iterator[list[jax.Array]],
        flood: Callable[[], None] = nothing,
        then: Callable[[], object] = nothing,
    ) -> Clock:
        def ready() -> None:
            retaken.ready(then)

        return retaken.clock(self._clock(program, operands, ready, flood))

    def _first(
        self, key: str, program: Program, operands: Iterator[list[jax.Array]]
    ) -> list[jax.Array]:
        """Operands of a call, and what is large of a form's first ones in large pages."""
        first = next(operands)
        if key not in self._moved:
            self._moved.add(key)
            bind_empty(key, moves=True)
            for _ in range(MOVING_CALLS):
                _wait(program(first))
        return first

    def _empty(
        self,
        key: str,
        program: Program,
        some: list[jax.Array],
        then: Callable[[], object] = nothing,
    ) -> Clock:
        """A call of nothing.  It reads no operand, so it must not use up turns of the ring.

        `then` comes right before it, as before the call that it is taken off from: a call behind
        one that brings threads together takes 3 microseconds longer.
        """

        def ready() -> None:
            bind_empty(key)
            then()

        return self._clock(program, repeat(some), ready)

    def _baked(self, retaken: Retaken) -> Clock | None:
        """The default with its constants in its text, or None where there is nothing to bake."""
        program, size = self._in_text, self._constant_bytes
        if program is None:
            return None
        return self._retaken(retaken, program, repeat(self._warm), self._flood(size))

    @cached_property
    def _in_text(self) -> Program | None:
        """XLA's own kernel, its constants in its text; None where that is not tried."""
        dtypes = {self.graph.argument_types[i].dtype for i in self.constants}
        if not 0 < self._constant_bytes <= MOST_BAKED_BYTES or "i1" in dtypes:
            return None
        return compiled(baked_text(self.kernel, self.graph, self.values))

    @property
    def _constant_bytes(self) -> int:
        return sum(self.graph.argument_types[i].bytes for i in self.constants)

    def _flood(self, constant_bytes: int) -> Callable[[], None]:
        """Reads as many bytes as a ring of such constants has in its other copies."""
        other_bytes = (self._copies(constant_bytes) - 1) * constant_bytes
        if not other_bytes:
            return nothing
        (flood,) = next(Arena().ring([np.ones(other_bytes, np.uint8)], 1))
        read = _reader([(TensorType(flood.shape, "ui8"), other_bytes)], self.target)
        return lambda: _wait(read([flood]))

    def _copies(self, constant_bytes: int) -> int:
        return copies(constant_bytes, ring_bytes(self.target)) if self.cache == "model" else 1

    def _program(self, form: Form) -> tuple[str, Program]:
        if form not in self._forms:
            key = f"measure.{next(_keys)}"
            scratch, packed = form
            types = self.graph.argument_types
            text = replacement(key, types, self.graph.result_types, scratch, dict(packed))
            bind_empty(key)
            self._forms[form] = key, compiled(text)
        return self._forms[form]

    def _operands(self, loaded: Loaded, place: str) -> Iterator[list[jax.Array]]:
        """Operands of one call after another: arguments, then packed constants by position."""
        host = threaded(self.target.threads)
        packed = dict(sorted(prepack(loaded, dict(enumerate(self.values)), host).items()))
        raw = [i for i in self.constants if i not in packed]
        if not packed:
            place = _DEFAULT  # the same constants as the default's: one ring serves both
        extra = range(len(self._arrays), len(self._arrays) + len(packed))
        constants = [self.values[i] for i in raw] + list(packed.values())
        return self._cold((*raw, *extra), constants, place)

    def _cold(
        self, positions: Sequence[int], constants: Sequence[Array], place: str
    ) -> Iterator[list[jax.Array]]:
        """All operands; in the mode `model` those at `positions` are rotated through copies."""
        ring = self._ring(constants, place)
        missing = max(positions, default=-1) + 1 - len(self._arrays)
        operands = self._arrays + self._arrays[:1] * missing
        while True:
            for position, constant in zip(positions, next(ring), strict=True):
                operands[position] = constant
            yield operands

    def _ring(self, constants: Sequence[Array], place: str) -> Iterator[list[jax.Array]]:
        if place == _DEFAULT and self._shared is not None:
            return self._shared
        arena = self._arenas.setdefault(place, Arena())
        ring = arena.ring(constants, self._copies(sum(c.nbytes for c in constants)))
        if place == _DEFAULT:
            self._shared = ring
        return ring

    def _clock(
        self,
        program: Program,
        operands: Iterator[list[jax.Array]],
        ready: Callable[[], None],
        flood: Callable[[], None] = nothing,
    ) -> Clock:
        """`flood` empties caches before they are put into their state, `ready` comes last."""
        warm = self._warm

        def clock() -> float:
            arguments = next(operands)
            flood()
            if self._between is not None and self.last:
                self._held.begin()  # each thread is to read into the caches of its own processor
                _wait(self._between([*self.last, *warm]))
            self.last.clear()  # the next results take their memory
            ready()
            start = time.perf_counter()
            results = program(arguments)
            for result in results:
                result.block_until_ready()
            seconds = time.perf_counter() - start
            self.last.extend(results)
            return seconds

        return clock


def _reader(operands: Sequence[tuple[TensorType, int]], target: CpuTarget) -> Program:
    """A program that reads its operands in every thread, each up to a number of bytes."""
    types = [t for t, _ in operands]
    sizes = [max(1, min(t.bytes, most_bytes)) for t, most_bytes in operands]
    template = Template(Path(__file__).with_name("reader.ll").read_text(encoding="utf-8"))
    text = template.substitute(
        count=len(sizes), bytes=", ".join(f"i64 {s}" for s in sizes), threads=target.threads
    )
    return _support(text, types, [TensorType((64,), "ui8")], target)


def _support(
    text: str, arguments: Sequence[TensorType], results: Sequence[TensorType], target: CpuTarget
) -> Program:
    """A kernel of our own, written by hand, as a program."""
    key = f"measure.{next(_keys)}"
    bind(key, load(Built(machine_code(text, target, "measure"), 0, (), 0, target.threads)))
    return compiled(replacement(key, arguments, results, 0, {}))


def size_class(scratch_bytes: int) -> int:
    """The next power of two, so that few programs serve all candidates; nothing stays nothing."""
    if scratch_bytes == 0:
        return 0
    return max(_SMALLEST_SCRATCH, 1 << (scratch_bytes - 1).bit_length())


def _wait(results: Sequence[jax.Array]) -> None:
    for result in results:
        result.block_until_ready()


def _let_crew_rest() -> None:
    """Waits until our threads sleep.

    They look for work for a while after each kernel, and would keep XLA's from the processors.
    """
    end = time.perf_counter() + _LONGEST_REST_S
    while not crew_rests() and time.perf_counter() < end:
        pass

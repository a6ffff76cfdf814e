"""Machine code into this process: objects linked into memory, functions called on addresses.

The ABI: `int32 kernel(const Call*)` returns 0 when all is well; the structures are in `abi.py`.

`parallel_for` runs the body over [0, n) in ranges and returns when all are done; a `slot` below
`threads` is given to one running body at a time.  A kernel may call it any number of times, one
after another, but not from a body.
"""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import llvmlite.binding as llvm

from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_for_process
from hlotune.codegen.runtime.abi import Call, HostHead
from hlotune.codegen.runtime.amx_permission import require_tiles
from hlotune.schedules.errors import BuildError

KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Host:
    """How a kernel's parallel loops run in a direct call: see `hosts.py`."""

    parallel_for: int
    """Address of the function."""
    threads: int
    """Bodies that may run at the same time; slots are below it."""
    state: ctypes.c_uint64 | ctypes.Structure
    """Memory of the host's own, kept over calls."""

    def head(self, threads: int) -> HostHead:
        """The C struct, limited to a number of threads."""
        state = ctypes.addressof(self.state)
        return HostHead(self.parallel_for, min(self.threads, threads), state)


class Library:
    """An object linked into this process; its code lives as long as this value."""

    def __init__(self, machine_code: bytes, exports: Iterable[str], name: str) -> None:
        _check_machine(machine_code, name)
        builder = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process()
        self._addresses: dict[str, int] = {}
        for export in exports:
            builder.export_symbol(export)
            self._addresses[export] = 0
        try:
            self._tracker = builder.link(_jit(), name)
        except RuntimeError as error:
            raise BuildError(
                f"expected an object that defines {sorted(self._addresses)} and needs only what "
                f"this process has, got {name!r}: {error}; build it again"
            ) from error
        for export in self._addresses:
            self._addresses[export] = int(self._tracker[export])

    def address(self, name: str) -> int:
        """Raises BuildError where the object exports no such function."""
        try:
            return self._addresses[name]
        except KeyError:
            raise BuildError(
                f"expected one of {sorted(self._addresses)}, got {name!r}; ask for one of them"
            ) from None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel that can be called; its code is unmapped when nothing refers to this value."""

    built: Built
    library: Library

    def address(self, entry: str = KERNEL) -> int:
        return self.library.address(entry)

    def call(
        self, entry: str, args: Sequence[int], results: Sequence[int], scratch: int, host: Host
    ) -> int:
        """Calls an entry on addresses (64-byte aligned) and returns its status, 0 if all is well.

        `scratch` has at least `built.scratch_bytes` bytes; of the host's threads as many are used
        as the kernel was built for.  Raises BuildError where there is no such entry.
        """
        head = host.head(self.built.threads)
        arguments = (ctypes.c_void_p * len(args))(*args)
        outputs = (ctypes.c_void_p * len(results))(*results)
        call = Call(
            ctypes.addressof(arguments), ctypes.addressof(outputs), scratch, ctypes.addressof(head)
        )
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.address(entry))
        return int(function(ctypes.addressof(call)))


def load(built: Built) -> Loaded:
    """Links a kernel into this process.

    Raises:
        BuildError: the object is for another machine, lacks an entry, or needs a symbol that this
            process has not, or a matrix unit that the system refuses.
    """
    _check_machine(built.object, built.key)  # before the system is asked for what only it has
    if built.tiles:
        require_tiles(built.key)
    exports = (KERNEL, *(p.entry for p in built.packed))
    return Loaded(built, Library(built.object, exports, built.key))


def _jit() -> Any:
    """A JIT for one library: 0.3 ms, and it gives all memory back, which a shared one does not."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    # Its memory is one block: sections that are mapped apart may lie too far for their offsets.
    return cast(Any, llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True))


def _check_machine(machine_code: bytes, name: str) -> None:
    """The JIT would map an object for another processor without a word."""
    ours = _header()
    if machine_code[: len(ours)] != ours:
        raise BuildError(
            f"expected an object for {llvm.get_process_triple()} (header {ours.hex()}), "
            f"got {name!r} with header {machine_code[: len(ours)].hex()}; build it for this machine"
        )


@cache
def _header() -> bytes:
    """What objects of this machine start with: format, word size, byte order, kind, processor."""
    return compile_for_process("", "header")[:20]

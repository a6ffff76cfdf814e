"""LLVM text to object files, for this machine and others.

Only the code generator runs, at its level 2.  The pipeline of IR passes is left out on purpose:
the text already has the loops that are wanted, and the pipeline unrolls good register tiles into
spills.  So is what costs the code generator much and gives kernels next to nothing (`OPTIONS`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Literal, cast

import llvmlite.binding as llvm

from hlotune.schedules.errors import BuildError
from hlotune.schedules.targets.cpu import CpuTarget

Level = Literal[0, 1, 2, 3]
EXTENSIONS = {
    "x86_64": (
        "avx", "avx2", "fma", "fma4", "xop", "f16c", "bmi", "bmi2", "gfni", "vaes", "vpclmulqdq",
        "avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert",
        "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512bf16", "avx512bitalg",
        "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
        "avx512vp2intersect", "avx512vpopcntdq",
        "amx-tile", "amx-int8", "amx-bf16", "amx-fp16", "amx-complex",
    ),
    "aarch64": ("sve", "sve2"),
}  # fmt: skip
"""Instructions that operating system or hypervisor may hide, by architecture."""

OPTIONS = {
    "x86_64": (
        # Strength reduction: addresses stand at the head of the loop that they vary in, where a
        # multiplication costs nothing beside a tile.  The pass, and the many values that it leaves
        # to be selected and allocated, take a third of all time.
        ("disable-lsr", "true", "false"),
        # Scheduling of allocated registers: processors that execute out of order do it themselves.
        ("disable-post-ra", "true", "false"),
        # How many uses of an address are looked at to decide whether each of them computes it:
        # those of a tile, for each of its loads.
        ("cgp-max-address-users-to-scan", "2", "100"),
    ),
}
"""What costs the code generator much and gives kernels next to nothing, by architecture.

An option of LLVM, its value for kernels, and LLVM's own.  docs/lab/tuner.md has what was lost:
of 64 kernels in turns with their former selves nothing in the mean, and 2 to 3 % by one of them.
"""

_COMPILING = Lock()


def compile_object(
    llvm_text: str, target: CpuTarget, name: str = "kernel", level: Level = 2
) -> bytes:
    """Position-independent object file of a module of LLVM text.

    Args:
        llvm_text: the module; its triple and data layout are set to the target's.
        target: what to compile for, which need not be this machine.
        name: what error messages call the module.
        level: effort of the code generator.

    Raises:
        BuildError: LLVM does not accept the text, or does not know the triple.
    """
    machine = _machine(target.triple, target.isa, _flags(target), level)
    return _object(llvm_text, machine, name)


def assembly(llvm_text: str, target: CpuTarget, name: str = "kernel", level: Level = 2) -> str:
    """What `compile_object` makes, as assembly text."""
    machine = _machine(target.triple, target.isa, _flags(target), level)
    module = _module(llvm_text, machine, name)
    with _options(machine):
        return cast(str, machine.emit_assembly(module))


def compile_for_process(llvm_text: str, name: str) -> bytes:
    """Object file of support code for this process: baseline instructions of its triple."""
    return _object(llvm_text, _machine(llvm.get_process_triple(), "", "", 2), name)


def _object(llvm_text: str, machine: Any, name: str) -> bytes:
    module = _module(llvm_text, machine, name)
    with _options(machine):
        return cast(bytes, machine.emit_object(module))


@contextmanager
def _options(machine: Any) -> Iterator[None]:
    """LLVM with the `OPTIONS` of a machine, for one thread at a time.

    They are the process's, and others may compile in it: whoever uses llvmlite too gets LLVM's own
    back.  A thread that compiles at this moment has ours, which are right for any code, if not the
    best.
    """
    chosen = OPTIONS.get(str(machine.triple).partition("-")[0], ())
    with _COMPILING:
        _set({name: ours for name, ours, _ in chosen})
        try:
            yield
        finally:
            _set({name: own for name, _, own in chosen})


def _set(options: dict[str, str]) -> None:
    for name, value in options.items():
        llvm.set_option("hlotune", f"-{name}={value}")


def _flags(target: CpuTarget) -> str:
    """What the target has is on, and extensions that it lacks are off.

    A processor's name brings its extensions with it, also those that a hypervisor hides.  What is
    off comes first: what is on then brings back the smaller extensions that it is made of.
    """
    known = EXTENSIONS.get(target.triple.partition("-")[0], ())
    off = [f"-{x}" for x in known if x not in target.features]
    return ",".join([*off, *(f"+{x}" for x in target.features)])


@lru_cache(maxsize=64)
def _machine(triple: str, isa: str, features: str, level: Level) -> Any:
    _initialise()
    try:
        found = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise BuildError(
            f"expected an LLVM triple such as x86_64-unknown-linux-gnu, got {triple!r} ({error}); "
            f"correct the target"
        ) from error
    return found.create_target_machine(
        cpu=isa, features=features, opt=level, reloc="pic", codemodel="small"
    )


def _module(llvm_text: str, machine: Any, name: str) -> Any:
    _initialise()
    try:
        module = llvm.parse_assembly(llvm_text)
        module.name = name
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        version = ".".join(map(str, llvm.llvm_version_info))
        raise BuildError(
            f"expected valid LLVM text for {name!r}, got what LLVM {version} refuses; "
            f"mend what emitted it:\n{str(error).strip()}"
        ) from error
    return module


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()

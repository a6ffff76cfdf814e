"""The processor of this process, as the compiler of kernels sees it."""

import llvmlite.binding as llvm


def triple() -> str:
    """`x86_64-unknown-linux-gnu`."""
    return str(llvm.get_process_triple())


def core() -> str:
    """The compiler's name of the core, `znver5`."""
    return str(llvm.get_host_cpu_name())


def features() -> tuple[str, ...]:
    """Instructions that are on, sorted, by the compiler's names."""
    return tuple(sorted(k for k, on in llvm.get_host_cpu_features().items() if on))


def compiler_version() -> str:
    """`20.1.8`."""
    return ".".join(map(str, llvm.llvm_version_info))

"""The tables of backends: a module for each, and which of them serves which kind of target."""

import importlib
from typing import cast

from hlotune.codegen.backend import Backend
from hlotune.schedules.errors import BuildError
from hlotune.schedules.targets.kinds import CPU, GPU, TPU
from hlotune.schedules.targets.target import Kind, Target

BACKENDS: dict[str, str] = {
    "llvm": "hlotune.codegen.llvm.backend",
    "pallas": "hlotune.codegen.pallas.backend",
}
"""The module of each backend, by the name that built kernels bear.

Modules are imported when they are needed: each brings a compiler with it.
"""

OF_KIND: dict[Kind, str] = {CPU: "llvm", GPU: "pallas", TPU: "pallas"}
"""The backend of each kind of target that is built for."""


def backend_named(name: str) -> Backend:
    """The backend of a built kernel.  Raises BuildError where this version has none of the name."""
    if name not in BACKENDS:
        raise BuildError(
            f"expected a kernel of the backend {', '.join(BACKENDS)}, got one of {name!r}; "
            "build it again"
        )
    return cast(Backend, importlib.import_module(BACKENDS[name]).BACKEND)


def backend_of(target: Target) -> Backend:
    """The backend that builds for a target.  Raises BuildError where there is none."""
    if target.kind not in OF_KIND:
        raise BuildError(
            f"expected a target of kind {', '.join(OF_KIND)}, got {target.title} of kind "
            f"{target.kind}; nothing makes code for it yet"
        )
    return backend_named(OF_KIND[target.kind])

"""hlotune: finds faster schedules for the kernels of a program in HLO.

    program = hlotune.load("examples/mlp.py:model")
    result = hlotune.tune(program, budget="60s", database="tuning.db")
    fast = hlotune.apply(program, database="tuning.db")

Importing this package imports nothing else: each name brings its room when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlotune.deploy.apply import apply, freeze
    from hlotune.deploy.artifact import load_artifact, save_artifact
    from hlotune.deploy.compile import compile
    from hlotune.hlo.frontends.program import load
    from hlotune.hlo.frontends.variants import load_variants
    from hlotune.schedules.errors import HlotuneError
    from hlotune.search.jit import jit
    from hlotune.search.tune import tune

__all__ = [
    "HlotuneError",
    "apply",
    "compile",
    "freeze",
    "jit",
    "load",
    "load_artifact",
    "load_variants",
    "save_artifact",
    "tune",
]
__version__ = "0.2.0"

_HOME = {
    "HlotuneError": "hlotune.schedules.errors",
    "apply": "hlotune.deploy.apply",
    "compile": "hlotune.deploy.compile",
    "freeze": "hlotune.deploy.apply",
    "jit": "hlotune.search.jit",
    "load": "hlotune.hlo.frontends.program",
    "load_artifact": "hlotune.deploy.artifact",
    "load_variants": "hlotune.hlo.frontends.variants",
    "save_artifact": "hlotune.deploy.artifact",
    "tune": "hlotune.search.tune",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hlotune' has no attribute {name!r}; it has {__all__}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

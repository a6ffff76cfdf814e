"""Modules compiled for devices, each once: compiling for a GPU takes seconds."""

from functools import lru_cache
from typing import Any

from hlotune.hlo.mlir.versions import loaded

KEPT = 64
"""So many executables stay, those that were used last."""


@lru_cache(maxsize=KEPT)
def compiled(text: str, platform: str) -> Any:
    """The executable of a module for the first device of a platform; XLA's errors pass through."""
    return loaded(text, platform)

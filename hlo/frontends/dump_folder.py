"""Folders of `XLA_FLAGS=--xla_dump_to=FOLDER`: which files are modules, one file a module."""

import re
from pathlib import Path
from typing import NamedTuple

_MODULE_FILE = re.compile(
    r"(?P<module>module_\d+\..+?)\.(?P<stage>before|\w*after)_optimizations(?P<form>\.hlo\.pb|\.txt)"
)
_BETTER = (("before", ".hlo.pb"), ("before", ".txt"), ("after", ".hlo.pb"), ("after", ".txt"))
"""A protocol buffer holds all constants, a text may have elided them."""


class DumpedModule(NamedTuple):
    """A module that XLA compiled, and the file to read it from."""

    name: str
    """The name as XLA numbers it: `module_0006.jit_step`."""
    file: Path


def dumped_modules(folder: Path) -> tuple[DumpedModule, ...]:
    """The modules in a folder, in the order in which XLA compiled them.

    Of each the file made before optimizations, where there is one.  None at all where the folder is
    none of XLA's, or cannot be read.
    """
    found: dict[str, tuple[int, Path]] = {}
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return ()
    for file in files:
        if match := _MODULE_FILE.fullmatch(file.name):
            stage = "after" if match["stage"].endswith("after") else "before"
            rank = _BETTER.index((stage, match["form"]))
            found[match["module"]] = min(found.get(match["module"], (rank, file)), (rank, file))
    return tuple(DumpedModule(name, file) for name, (_, file) in found.items())

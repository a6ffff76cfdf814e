"""Folders of `XLA_FLAGS=--xla_dump_to=FOLDER`: which files are modules, one file a module."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MODULE_FILE = re.compile(
    r"(?P<stamp>\d+\.)?(?P<module>module_\d+\..+?)"
    r"\.(?P<stage>before|\w*after)_optimizations(?P<form>\.hlo\.pb|\.txt)"
)
"""`--xla_dump_include_timestamp` puts a number ahead of the names."""
_MODULE_FOLDER = re.compile(r"module_\d+\..+")
"""A folder for one module: JAX's StableHLO of it, and with `--xla_dump_hlo_to_subfolder` all."""
_STABLEHLO = "module.mlir"
_BETTER = (
    ("before", ".hlo.pb"), ("before", ".mlir"), ("before", ".txt"),
    ("after", ".hlo.pb"), ("after", ".txt"),
)  # fmt: skip
"""Protocol buffers and StableHLO hold all constants, HLO text may have elided them."""


class DumpedModule(NamedTuple):
    """A module that XLA compiled, and the file to read it from."""

    name: str
    """The name as XLA numbers it: `module_0006.jit_step`."""
    file: Path


class _Found(NamedTuple):
    stamp: str
    module: str
    rank: int
    """The place in `_BETTER`."""
    file: Path


def dumped_modules(folder: Path) -> tuple[DumpedModule, ...]:
    """The modules in a folder, in the order in which XLA compiled them.

    Of each the file made before optimizations, where there is one.  None at all where the folder is
    none of XLA's, or cannot be read.
    """
    try:
        found = [one for file in _files(folder) if (one := _module(file)) is not None]
    except OSError:
        return ()
    stamped = {one.module for one in found if one.stamp}
    best: dict[str, _Found] = {}
    for one in found:
        if one.stamp or one.module not in stamped:  # a module's folder has no number ahead
            name = one.stamp + one.module
            best[name] = min(best.get(name, one), one, key=lambda x: (x.rank, x.file))
    return tuple(DumpedModule(name, one.file) for name, one in best.items())


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder, and of folders in it that are for one module."""
    for entry in sorted(folder.iterdir()):
        if _MODULE_FOLDER.fullmatch(entry.name) and entry.is_dir():
            yield from sorted(entry.iterdir())
        else:
            yield entry


def _module(file: Path) -> _Found | None:
    """What a file's name says; None where it is no module."""
    if file.name == _STABLEHLO and _MODULE_FOLDER.fullmatch(file.parent.name):
        return _Found("", file.parent.name, _BETTER.index(("before", ".mlir")), file)
    match = _MODULE_FILE.fullmatch(file.name)
    if match is None:
        return None
    stage = "after" if match["stage"].endswith("after") else "before"
    rank = _BETTER.index((stage, match["form"]))
    return _Found(match["stamp"] or "", match["module"], rank, file)

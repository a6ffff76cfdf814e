"""The source tree, for the tests that look at it: rooms in the order of imports, files, imports."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "schedules",
    "hlo",
    "codegen",
    "measure",
    "costmodel",
    "tuning_logs",
    "deploy",
    "search",
    "cli",
)


@functools.cache
def files() -> tuple[Path, ...]:
    """What git tracks or would track, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (Path(p) for p in listed.split("\0") if p)
    return tuple(sorted({p for p in paths if (ROOT / p).exists() or (ROOT / p).is_symlink()}))


def modules(room: str) -> Iterator[Path]:
    return (f for f in files() if f.parts[0] == room and f.suffix == ".py")


def module_name(file: Path) -> str:
    """`search/tuner.py` -> `hlotune.search.tuner`."""
    parts = file.with_suffix("").parts
    return ".".join(("hlotune", *parts)).removesuffix(".__init__")


@functools.cache
def imports(file: Path) -> frozenset[str]:
    """Dotted names that a file imports, in any function or branch; `from a import b` is `a.b`."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)

"""The source tree, for the tests that look at it: rooms in the order of imports, files, imports."""

import ast
import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from hlotune.schedules.garbage import collected_later

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


def imports(file: Path) -> frozenset[str]:
    """Dotted names that a file imports, in any function or branch; `from a import b` is `a.b`."""
    return _read(file)[0]


def whole_texts(file: Path) -> tuple[tuple[int, str], ...]:
    """Texts of a file that are no part of a formatted string, each with its line."""
    return _read(file)[1]


@functools.cache
def _read(file: Path) -> tuple[frozenset[str], tuple[tuple[int, str], ...]]:
    """What a file imports, and its texts: parsed once for all tests, and not kept as a tree."""
    with collected_later():
        nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    formatted = (part for x in nodes if isinstance(x, ast.JoinedStr) for part in x.values)
    parts = {id(part) for part in formatted}
    texts = (x for x in nodes if isinstance(x, ast.Constant) and id(x) not in parts)
    whole = tuple((x.lineno, x.value) for x in texts if isinstance(x.value, str))
    return frozenset(_imported(nodes)), whole


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)

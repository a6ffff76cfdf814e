"""The Python processes that hlotune starts import what this process imports, and nothing beside.

The working folder belongs to the user: a file `queue.py` in it must not take the place of the
standard library's module.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_LIBRARY = Path(os.__file__).parent
_STANDARD = (str(_LIBRARY), str(_LIBRARY / "lib-dynload"))


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module in this interpreter without the working folder in its path."""
    return (sys.executable, "-P", "-m", module, *arguments)


def python_path() -> str:
    """PYTHONPATH of a process of our own: this process's path, the standard library first.

    The working folder is left out unless hlotune itself lies there.
    """
    return os.pathsep.join(_ordered(sys.path, os.getcwd(), str(Path(__file__).parents[2])))


def _ordered(paths: Sequence[str], working: str, home: str) -> list[str]:
    """Absolute paths; `home` is the folder that hlotune is imported from."""
    absolute = [os.path.normpath(os.path.join(working, p)) for p in paths]
    standard = [p for p in _STANDARD if p in absolute]
    others = [p for p in absolute if p not in _STANDARD and (p != working or p == home)]
    return [*standard, *dict.fromkeys(others)]

"""Functions that the user names: `path.py:name`, `package.module:name`, and factories.

What the user's code raises while it is imported and called becomes a ProgramError.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from hlotune.schedules.errors import ProgramError

RAISED = (Exception, SystemExit)
"""What the user's code can raise while it is imported, called and traced; Ctrl-C is not its own."""


@contextmanager
def importable(where: str) -> Iterator[None]:
    """Lets a file find its neighbours, also those that its functions import when they run; a module
    may be one of the current folder, where no other has its name."""
    if where.endswith(".py"):
        folders = _folders(Path(where).resolve())
        sys.path[:0] = folders
    else:
        folders = _current_folder()
        sys.path += folders
    try:
        yield
    finally:
        for folder in folders:
            with suppress(ValueError):  # the file may have changed the list itself
                sys.path.remove(folder)


def _current_folder() -> list[str]:
    """The current folder, unless modules are looked up in it already; none where it was deleted."""
    with suppress(OSError):
        here = os.getcwd()
        return [] if {"", here} & set(sys.path) else [here]
    return []


def imported(where: str) -> ModuleType:
    """Imports `path.py` or `package.module`.

    Raises:
        ProgramError: there is none, or importing it fails.
    """
    if where.endswith(".py") and not Path(where).is_file():
        raise ProgramError(f"expected a Python file {where}, found none; check the path")
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        return _run_file(Path(where).resolve())
    except RAISED as error:
        absent = isinstance(error, ImportError)
        advice = "check the path and the module" if absent else f"mend {where}"
        raise ProgramError(
            f"expected {where} to be importable, got {type(error).__name__}: {error}; {advice}: "
            "with HLOTUNE_DEBUG=1 the traceback is shown"
        ) from error


def _run_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module  # dataclasses look up the module of their class
    try:
        spec.loader.exec_module(module)
    finally:
        _restore(spec.name, before)
    return module


def _restore(name: str, before: ModuleType | None) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def _folders(path: Path) -> list[str]:
    """Where a file finds its imports: beside it, as scripts do, and above the package it is in."""
    above = path.parent
    while (above / "__init__.py").exists():
        above = above.parent
    return [str(folder) for folder in dict.fromkeys((path.parent, above))]


def function_in(module: ModuleType, where: str, name: str) -> Callable[..., Any]:
    """The function of a module; raises ProgramError where it has none of this name."""
    found = getattr(module, name, None)
    if found is not None and not callable(found):
        raise ProgramError(
            f"expected a function {name!r} in {where}, got a value of type "
            f"{type(found).__name__}; name the function, or a factory that returns it"
        )
    if found is None:
        names = sorted(
            n for n, f in vars(module).items()
            if callable(f) and getattr(f, "__module__", None) == module.__name__ and n[0] != "_"
        )  # fmt: skip
        raise ProgramError(
            f"expected a function {name!r} in {where}, got none; it has "
            f"{', '.join(names) or 'no functions'}"
        )
    return found  # type: ignore[no-any-return]


def _takes_arguments(function: Callable[..., Any]) -> bool:
    """Whether it cannot be called without any; also where nobody knows."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return True
    return False


def require_parameters(function: Callable[..., Any], source: str, count: int) -> None:
    """Raises ProgramError where arguments are given beside a function that takes none, as most
    factories do.
    """
    try:
        takes_none = not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if takes_none:
        raise ProgramError(
            f"expected {source} to take {count} argument{'s' * (count != 1)}, as so many are given "
            "(--arg), got a function that takes none; leave them out if it is a factory, which "
            "returns its own, or name the function that takes them"
        )


def call_factory(
    factory: Callable[..., Any], source: str
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and the example arguments that a factory returns.

    Raises:
        ProgramError: calling it fails, or it returns anything else.
    """
    try:
        made = factory()
    except RAISED as error:
        got = f"{type(error).__name__}: {error}"
        if _takes_arguments(factory):
            raise ProgramError(
                f"expected {source} to be a factory without arguments, got {got}; give argument "
                "types if it is the function itself"
            ) from error
        raise ProgramError(
            f"expected {source}() to return (function, example_args), got {got}; mend the factory: "
            "with HLOTUNE_DEBUG=1 the traceback is shown"
        ) from error
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise ProgramError(
            f"expected {source}() to return (function, example_args), got {type(made).__name__}; "
            "return both, or give argument types if it is the function itself"
        )
    function, arguments = made
    if not isinstance(arguments, tuple | list):
        raise ProgramError(
            f"expected {source}() to return its example arguments in a tuple, got "
            f"{type(arguments).__name__}; return (function, (argument, ...))"
        )
    return function, tuple(arguments)

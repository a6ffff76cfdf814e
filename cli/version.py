"""`tune --version`: the versions that a report of a problem should name."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

import hlotune


def versions() -> str:
    """hlotune, jax, jaxlib and Python, with commas between; nothing heavy is imported."""
    found = (f"{name} {_installed(name)}" for name in ("jax", "jaxlib"))
    return ", ".join(
        [f"hlotune {hlotune.__version__}", *found, f"Python {platform.python_version()}"]
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _print(asked: bool) -> None:
    if asked:
        print(versions())
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print,
        is_eager=True,
        help="Print the versions of hlotune, jax, jaxlib and Python.",
    ),
]

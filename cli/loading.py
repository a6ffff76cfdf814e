"""Programs as commands name them."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from hlotune.hlo.frontends.file_kinds import FILES, suffix_of
from hlotune.schedules.errors import ProgramError

if TYPE_CHECKING:
    from hlotune.hlo.frontends.program import Program


def begin_loading(arguments: Sequence[str]) -> None:
    """Starts the process that parses program files, where an argument of a command is one: it gets
    ready while this process imports jax."""
    if any(suffix_of(Path(argument)) in FILES for argument in arguments):
        from hlotune.hlo.frontends import checked_parse

        checked_parse.begin()


def load_program(
    source: str,
    argument_types: Sequence[str] | None,
    sizes: Sequence[str] | None = None,
    trips: Sequence[str] | None = None,
) -> "Program":
    """The program, with sizes of symbolic dimensions as in batch=8, and trips of loops as in
    while0=50.

    What its Python code prints goes to stderr: stdout has the answer alone.  Raises ProgramError.
    """
    from hlotune.hlo.frontends.program import load

    with redirect_stdout(sys.stderr):
        return load(
            source,
            argument_types=argument_types or (),
            dims=dimensions(sizes or ()),
            trips=trips_of(trips or ()),
        )


def trips_of(texts: Sequence[str]) -> dict[str, list[float]]:
    """Numbers by the name of a loop or choice; raises ProgramError for what is none."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            found[name] = [float(number) for number in numbers.split(",")]
        except ValueError:
            raise ProgramError(
                f"expected trips as in 50, while0=50 or if0=0.9,0.1, got {text!r}; give numbers "
                "behind the name of a loop or of a choice between branches"
            ) from None
    return found


def dimensions(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by name; raises ProgramError for what is no size."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not (size.isascii() and size.isdecimal()) or name in found:
            twice = ", its second size" if name in found else ""
            raise ProgramError(
                f"expected a dimension and its size, as in batch=8, got {text!r}{twice}; give each "
                "dimension one whole number"
            )
        found[name] = int(size)
    return found


def source_files(source: str) -> list[Path]:
    """The file that a source names, with or without a function in it; none where it is a module."""
    named = (Path(source), Path(source.rpartition(":")[0]))
    return [path for path in named if path.is_file()]

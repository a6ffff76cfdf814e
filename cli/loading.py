"""Programs as commands name them."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from hlotune.hlo.frontends.file_kinds import FILES, suffix_of

if TYPE_CHECKING:
    from hlotune.hlo.frontends.program import Program


def begin_loading(arguments: Sequence[str]) -> None:
    """Starts the process that parses program files, where an argument of a command is one: it gets
    ready while this process imports jax."""
    if any(suffix_of(Path(argument)) in FILES for argument in arguments):
        from hlotune.hlo.frontends import checked_parse

        checked_parse.begin()


def load_program(source: str, argument_types: Sequence[str] | None) -> "Program":
    """The program.  What its Python code prints goes to stderr: stdout has the answer alone.

    Raises ProgramError.
    """
    from hlotune.hlo.frontends.program import load

    with redirect_stdout(sys.stderr):
        return load(source, argument_types=argument_types or ())


def source_files(source: str) -> list[Path]:
    """The file that a source names, with or without a function in it; none where it is a module."""
    named = (Path(source), Path(source.rpartition(":")[0]))
    return [path for path in named if path.is_file()]

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

MOST_DIGITS = 18
"""A size has no more: no number of 64 bits has."""
SHOWN = 100
"""The most characters that an error repeats of what was given."""


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
    *,
    may_lack_loops: bool = False,
) -> "Program":
    """The program, with sizes of symbolic dimensions as in batch=8, and trips of loops as in
    while0=50.

    What its Python code prints goes to stderr: stdout has the answer alone.  Raises ProgramError,
    also for several sizes of a dimension, and, unless the program `may_lack_loops`, for trips of
    all loops where none waits for them.
    """
    several = next((t for t, (_, found) in _sizes(sizes or ()) if len(found) > 1), None)
    if several is not None:
        raise ProgramError(
            f"expected one size of each dimension for this command, got {several}; name one: "
            "`tune run`, `tune bench` and `tune apply` take several"
        )
    (program,) = load_programs(source, argument_types, sizes, trips)
    if not may_lack_loops:
        require_open_loop(program)
    return program


def load_programs(
    source: str,
    argument_types: Sequence[str] | None,
    sizes: Sequence[str] | None = None,
    trips: Sequence[str] | None = None,
) -> "tuple[Program, ...]":
    """The program for each combination of sizes, as `load_program` loads it for one."""
    from hlotune.hlo.frontends.program import load
    from hlotune.hlo.frontends.variants import load_variants

    dims, types, told = dimensions(sizes or ()), argument_types or (), trips_of(trips or ())
    with redirect_stdout(sys.stderr):
        if any(len(found) > 1 for found in dims.values()):
            return load_variants(source, argument_types=types, dims=dims, trips=told)
        one = {name: size for name, (size,) in dims.items()}
        return (load(source, argument_types=types, dims=one, trips=told),)


def trips_of(texts: Sequence[str]) -> dict[str, list[float]]:
    """Numbers by the name of a loop or choice; raises ProgramError for what is none."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, sign, numbers = text.rpartition("=")
        if name in found:
            raise _no_trips(text, ", its second time")
        if "=" in name or (sign and not name):
            raise _no_trips(text)
        try:
            found[name] = [float(number) for number in numbers.split(",")]
        except ValueError:
            raise _no_trips(text) from None
    return found


def _no_trips(text: str, why: str = "") -> ProgramError:
    return ProgramError(
        f"expected trips as in 50, while0=50 or if0=0.9,0.1, got {text!r}{why}; give numbers "
        "behind the name of a loop or of a choice between branches, and each name once"
    )


def require_open_loop(program: "Program") -> None:
    """Raises ProgramError where trips of all loops are told, and no loop waits for them."""
    from hlotune.hlo.sites.trip_counts import ALL_LOOPS, flows

    if ALL_LOOPS not in program.trips:
        return
    loops = [f for f in flows(program.graph, program.trips).values() if f.name.startswith("while")]
    if any(loop.why == "told" and loop.name not in program.trips for loop in loops):
        return
    known = ", ".join(f"{loop.name} {loop.runs[0]:g} times" for loop in loops[:3])
    do = "do, or are named" if any(loop.why == "told" for loop in loops) else "do"
    whose = f"whose loops {do} ({known})" if loops else "which has no loop"
    raise ProgramError(
        "expected a loop that does not say itself how often it runs, for which --trips is, got "
        f"program {program.name}, {whose}; "
        f"leave --trips out{', or name a loop in it' if loops else ''}"
    )


def dimensions(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Sizes by name; raises ProgramError for what is no size."""
    found: dict[str, tuple[int, ...]] = {}
    for text, (name, sizes) in _sizes(texts):
        if name in found:
            raise _no_sizes(text, ", its second time")
        found[name] = sizes
    return found


def single_sizes(texts: Sequence[str]) -> list[list[str]]:
    """The options of each combination: batch=1,8 is batch=1, and batch=8.  Raises ProgramError."""
    from hlotune.hlo.frontends.symbolic_sizes import combinations

    return [[f"{n}={s}" for n, s in one.items()] for one in combinations(dimensions(texts))]


def _sizes(texts: Sequence[str]) -> list[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Each text with the name and the sizes in it."""
    found = []
    for text in texts:
        name, _, listed = text.rpartition("=")
        sizes = [s.strip() for s in listed.split(",")]
        if not name or "=" in name or not all(map(_is_size, sizes)):
            raise _no_sizes(text)
        found.append((text, (name, tuple(map(int, sizes)))))
    return found


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def _no_sizes(text: str, why: str = "") -> ProgramError:
    return ProgramError(
        f"expected a dimension and its size, as in batch=8, or sizes, as in batch=1,8, got "
        f"{text[:SHOWN]!r}{why}; give each dimension once, with whole numbers of at most "
        f"{MOST_DIGITS} digits"
    )


def source_files(source: str) -> list[Path]:
    """The file that a source names, with or without a function in it; none where it is a module."""
    named = (Path(source), Path(source.rpartition(":")[0]))
    return [path for path in named if path.is_file()]

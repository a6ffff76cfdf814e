"""All cases by name, from every `cases_*.py` of this folder."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from benchmarks.kernels.case import Case
from hlotune.schedules.errors import ProgramError


def _all() -> dict[str, Case]:
    files = sorted(p.stem for p in Path(__file__).parent.glob("cases_*.py"))
    rows: list[Case] = []
    for name in files:
        rows += import_module(f"{__package__}.{name}").CASES
    found = {case.name: case for case in rows}
    if len(found) < len(rows):
        raise ProgramError("expected a name of its own for each case, got two that are equal")
    return found


CASES: dict[str, Case] = _all()


def chosen(patterns: Iterable[str]) -> list[Case]:
    """The cases that match, in the order of the patterns.

    Raises ProgramError for a pattern that matches none.
    """
    found: dict[str, Case] = {}
    for pattern in patterns:
        matching = {n: c for n, c in CASES.items() if fnmatchcase(n, pattern)}
        if not matching:
            raise ProgramError(
                f"expected a pattern that matches a case, got {pattern!r}; cases are: "
                + ", ".join(CASES)
            )
        found |= matching
    return list(found.values())

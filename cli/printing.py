"""What commands print: JSON or tables, numbers with units that suit their size."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from hlotune.tuning_logs.columns import fitting, left_out
from hlotune.tuning_logs.text import escaped

LONGEST_WORDS = 24
"""The width that is asked for a column that may fold or be cut, before others are left out."""
PIPED_WIDTH = 200
"""Columns of a table that no terminal shows: lines are for grep, not for folding."""


def print_notes(notes: Sequence[str], *, file: TextIO | None = None) -> None:
    """What has to be said beside a program's figures, a line each; by default to stdout."""
    for note in notes:
        say(f"note: {note}", file=file)


def print_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Indented JSON; numbers that are not finite are an error, since JSON has none."""
    print(json.dumps(data, indent=2, allow_nan=False))


def finite(value: Any) -> Any:
    """The same with null for infinities and what is no number: JSON has neither."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    spare: Sequence[str] = (),
) -> None:
    """A table whose columns stand right where their name starts with `>`.

    In a terminal without room for all, columns in `spare` are left out, the first of them first,
    and a line says which.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else PIPED_WIDTH
    console = Console(width=width, highlight=False)
    names, cells = [c.lstrip(">") for c in columns], [list(map(escaped, row)) for row in rows]
    widths = {
        name: max(len(name), *(min(len(row[k]), LONGEST_WORDS) for row in cells), 0)
        for k, name in enumerate(names)
    }
    shown = fitting(widths, spare, console.width - 2, gap=3)
    table = Table(
        title=escaped(title) or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    for column in columns:
        if column.lstrip(">") not in shown:
            continue
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    for row in cells:
        table.add_row(*(Text(row[k]) for k, name in enumerate(names) if name in shown))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n"))
    if missing := left_out([name for name in names if name not in shown]):
        print(missing)


def say(text: str, file: TextIO | None = None) -> None:
    """Prints words of records, programs and files, which do nothing to a terminal."""
    print(escaped(text, keep="\n\t"), file=file, flush=file is not None)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 kernel`, `2 kernels`; a plural that needs more than an `s` is given."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def size(count: float | None, unit: str, base: int = 1000) -> str:
    """`1.23 GFLOP`, `32 KiB`: a count with the prefix that suits it."""
    if count is None:
        return "-"
    prefixes = ("", "Ki", "Mi", "Gi", "Ti") if base == 1024 else ("", "k", "M", "G", "T")
    for prefix in prefixes[:-1]:
        if abs(count) < base * 0.9995:
            return f"{count:.4g} {prefix}{unit}"
        count /= base
    return f"{count:.4g} {prefixes[-1]}{unit}"


def times(ratio: float | None) -> str:
    """`1.23x`, a dash where there is no ratio."""
    return "-" if ratio is None else f"{ratio:.2f}x"

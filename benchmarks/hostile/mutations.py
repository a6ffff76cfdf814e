"""Mutations of files: the same number always makes the same one of the same original."""

import io
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Edit = Callable[[bytes, np.random.Generator], bytes]

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")
_EXTREMES = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775807",
    b"18446744073709551616", b"1e999", b"nan", b"0x7fffffff",
)  # fmt: skip
_ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**63, 2**70, "", "\x00", "x" * 5000, [], {}, [[]], float("nan"),
    float("inf"), {"": {}}, "1e5", "\ud800",
)  # fmt: skip
_ODD_CELLS: tuple[Any, ...] = (
    None,
    -1,
    0,
    2**63 - 1,
    1e308,
    "",
    "{",
    "[]",
    "null",
    "x" * 5000,
    b"\xff\x00",
    '{"version": 9}',
)


def place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(data) + 1))


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    """One bit."""
    if not data:
        return data
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    """Up to 16 bytes, by random ones or by one that stands for an extreme."""
    at, count = place(data, rng), int(rng.integers(1, 17))
    filler = [rng.bytes(count), b"\0" * count, b"\xff" * count][int(rng.integers(3))]
    return data[:at] + filler[: len(data) - at] + data[at + count :]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    at = place(data, rng)
    return data[:at] + rng.bytes(int(rng.integers(1, 33))) + data[at:]


def delete(data: bytes, rng: np.random.Generator) -> bytes:
    at = place(data, rng)
    return data[:at] + data[at + int(rng.integers(1, 65)) :]


def repeat(data: bytes, rng: np.random.Generator) -> bytes:
    """Up to 256 bytes twice."""
    at = place(data, rng)
    return data[: at + int(rng.integers(1, 257))] + data[at:]


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: place(data, rng)]


def exchange(data: bytes, rng: np.random.Generator) -> bytes:
    """Two pieces of the file change places."""
    a, b, c = sorted(place(data, rng) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


BYTES: Sequence[Edit] = (flip, flip, overwrite, overwrite, insert, delete, repeat, cut, exchange)


def _replaced(pattern: "re.Pattern[bytes]", data: bytes, new: bytes, at: int) -> bytes:
    match = pattern.search(data, at) or pattern.search(data)
    return data if match is None else data[: match.start()] + new + data[match.end() :]


def other_number(data: bytes, rng: np.random.Generator) -> bytes:
    new = _EXTREMES[int(rng.integers(len(_EXTREMES)))]
    return _replaced(_NUMBER, data, new, place(data, rng))


def other_word(data: bytes, rng: np.random.Generator) -> bytes:
    """A word of the file in the place of another one."""
    found = _WORD.search(data, place(data, rng)) or _WORD.search(data)
    return data if found is None else _replaced(_WORD, data, found.group(), place(data, rng))


def line_away(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        del lines[int(rng.integers(len(lines)))]
    return b"".join(lines)


def line_again(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        lines.insert(int(rng.integers(len(lines))), lines[int(rng.integers(len(lines)))])
    return b"".join(lines)


def no_text(data: bytes, rng: np.random.Generator) -> bytes:
    at = place(data, rng)
    return data[:at] + b"\xff" + data[at:]


TEXT: Sequence[Edit] = (
    *(other_number,) * 5, *(other_word,) * 4, line_away, line_again, no_text, *BYTES,
)  # fmt: skip


def other_value(data: bytes, rng: np.random.Generator) -> bytes:
    """One value of one line of JSON, wherever it stands, by another of another kind."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = int(rng.integers(len(lines)))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return flip(data, rng)
    paths = list(_paths(value))
    way = paths[int(rng.integers(len(paths)))]
    new = _ODD_VALUES[int(rng.integers(len(_ODD_VALUES)))]
    lines[at] = json.dumps(_put(value, way, new)).encode() + b"\n"
    return b"".join(lines)


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Any:
    yield above
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in inside:
        yield from _paths(inner, (*above, key))


def _put(value: Any, way: Sequence[Any], new: Any) -> Any:
    if not way:
        return new
    value[way[0]] = _put(value[way[0]], way[1:], new)
    return value


JSON_LINES: Sequence[Edit] = (*(other_value,) * 12, other_number, other_word, *BYTES)


def in_member(edits: Sequence[Edit]) -> Edit:
    """An edit of one member of a zip archive, which is packed again with right checksums."""

    def edit(data: bytes, rng: np.random.Generator) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [(m, archive.read(m)) for m in archive.infolist()]
        except Exception:  # an edit before this one has spoiled the archive itself
            return flip(data, rng)
        number = int(rng.integers(len(members)))
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for n, (info, content) in enumerate(members):
                chosen = edits[int(rng.integers(len(edits)))] if n == number else None
                new = chosen(content, rng) if chosen else content
                archive.writestr(zipfile.ZipInfo(info.filename), new, info.compress_type)
        return made.getvalue()

    return edit


def other_cell(data: bytes, rng: np.random.Generator) -> bytes:
    """One cell of an SQLite database by another value."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        try:
            tables = _column(connection, "select name from sqlite_master where type = 'table'")
            table = tables[int(rng.integers(len(tables)))]
            columns = _column(connection, f"select name from pragma_table_info('{table}')")
            column = columns[int(rng.integers(len(columns)))]
            rows = _column(connection, f"select count(*) from {table}")[0]
            value = _ODD_CELLS[int(rng.integers(len(_ODD_CELLS)))]
            row = int(rng.integers(max(1, int(rows))))
            connection.execute("pragma foreign_keys = off")
            connection.execute(
                f"update {table} set {column} = ? where rowid in "
                f"(select rowid from {table} limit 1 offset {row})",
                (value,),
            )
            connection.commit()
        except (sqlite3.Error, ValueError):
            # constraints refuse it, or an edit before this one spoiled the file or a name in it
            return flip(data, rng)
        finally:
            connection.close()
        return path.read_bytes()


def _column(connection: sqlite3.Connection, query: str) -> list[Any]:
    return [row[0] for row in connection.execute(query)]


DATABASE: Sequence[Edit] = (*(other_cell,) * 9, *BYTES)
MODEL: Sequence[Edit] = (*(in_member((*BYTES, *TEXT)),) * 18, *BYTES)
ARTIFACT: Sequence[Edit] = (*(in_member((*BYTES, *TEXT, other_value)),) * 12, *BYTES)


def mutated(data: bytes, edits: Sequence[Edit], seed: Sequence[int]) -> bytes:
    """One edit, or a few; never the original."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        changed = data
        for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
            changed = edits[int(rng.integers(len(edits)))](changed, rng)
        if changed != data:
            return changed
    raise ValueError("expected an original that an edit changes, got one that none does")

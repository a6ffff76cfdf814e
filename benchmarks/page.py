"""Puts the tables of `build/*.json` into `docs/performance.md`, so that no figure is typed by hand.

    python -m benchmarks.page

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`.  Charts that the page shows are taken
from `build/*.svg`.  What was not measured stays.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.command import command
from benchmarks.results import FOLDER, described

PAGE = Path("docs/performance.md")
CHART = re.compile(r"!\[[^]]*\]\((charts/\w+\.svg)\)")
MARKED = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- /(?P=name) -->", re.DOTALL)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = {n: FOLDER / f"{n}.json" for n in names(text)}
    tables = {n: json.loads(path.read_text()) for n, path in found.items() if path.exists()}
    PAGE.write_text(filled(text, tables), encoding="utf-8")
    for chart in CHART.findall(text):
        if (drawn := FOLDER / Path(chart).name).exists():
            shutil.copyfile(drawn, PAGE.parent / chart)
    print(f"{PAGE}: {', '.join(tables) or 'nothing measured'}")


def names(text: str) -> list[str]:
    return [match["name"] for match in MARKED.finditer(text)]


def filled(text: str, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with the tables that there are; the others keep what they had."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            return match[0]
        return f"<!-- {name} -->\n{markdown(tables[name])}\n<!-- /{name} -->"

    return MARKED.sub(table, text)


def markdown(table: Mapping[str, Any]) -> str:
    """Conditions, table and notes."""
    columns: list[str] = table["columns"]
    rule = ["---:" if c.startswith(">") else "---" for c in columns]
    lines = [[c.lstrip(">") for c in columns], rule, *table["rows"]]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = "\n".join(f"- {note}" for note in table["notes"])
    return f"{described(table['conditions'])}:\n\n{text}\n\n{notes}"


if __name__ == "__main__":
    command(main)

"""Puts the tables of `docs/lab/results/` and `build/*.json` into `docs/performance.md`,
`docs/reliability.md`, the pages of `docs/lab/` and `docs/models.md`, and what tuning gains into
`README.md`, so that no figure is typed by hand.

    python -m benchmarks.page

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`, in one page; one of kernels or models
has the kind of core behind its name.  Charts of performance are taken from `build/*.svg`.  A table
that was not measured stays as it is.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import evaluations, gains, tracked
from benchmarks.command import command
from benchmarks.kernels import table as kernels
from benchmarks.models import losses
from benchmarks.models import table as models
from benchmarks.results import FOLDER, described

README = Path("README.md")
PAGE = Path("docs/performance.md")
RELIABILITY = Path("docs/reliability.md")
LAB = Path("docs/lab")
MODELS = Path("docs/models.md")
CHART = re.compile(r"!\[[^]]*\]\(((?:\.\./)?charts/\w+\.svg)\)")
MARKED = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- /(?P=name) -->", re.DOTALL)


def main() -> None:
    measured = tracked_tables()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        found = kept(names(text)) | {x: measured[x] for x in names(text) if x in measured}
        put(page, {name: markdown(table) for name, table in found.items()})
        for chart in CHART.findall(text):
            if (drawn := FOLDER / Path(chart).name).exists():
                shutil.copyfile(drawn, page.parent / chart)
    shown = {x for page in pages() for x in names(page.read_text(encoding="utf-8"))}
    for name in measured.keys() - shown:
        print(f"{name} stands in no page; put <!-- {name} --> and <!-- /{name} --> into one")
    if said := gains.paragraph():
        put(README, {gains.NAME: said})
    judged = evaluations.tables(kept((evaluations.KERNELS, evaluations.FAMILIES)))
    put(MODELS, {table.name: listed(table.columns, table.rows) for table in judged})


def pages(root: Path = Path()) -> list[Path]:
    """The pages with tables of benchmarks; those of models are elsewhere."""
    return [root / PAGE, root / RELIABILITY, *sorted((root / LAB).glob("*.md"))]


def kept(tables: Sequence[str]) -> dict[str, Any]:
    """By name, what was measured of them."""
    files = {name: FOLDER / f"{name}.json" for name in tables}
    measured = {name: file for name, file in files.items() if file.exists()}
    return {name: json.loads(f.read_text(encoding="utf-8")) for name, f in measured.items()}


def tracked_tables(folder: Path = tracked.RESULTS) -> dict[str, dict[str, Any]]:
    """By name, the tables of kernels, models and losses, of every kind of core."""
    found = chain(kernels.measured(folder), models.measured(folder), losses.measured(folder))
    return {table.name: {**asdict(table), "conditions": under} for table, under, _ in found}


def put(page: Path, blocks: Mapping[str, str]) -> None:
    page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(f"{page}: {', '.join(blocks) or 'nothing measured'}")


def names(text: str) -> list[str]:
    return [match["name"] for match in MARKED.finditer(text)]


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """The page with what there is between its marks; the others keep what they had."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in blocks:
            return match[0]
        return f"<!-- {name} -->\n{blocks[name]}\n<!-- /{name} -->"

    return MARKED.sub(block, text)


def markdown(table: Mapping[str, Any]) -> str:
    """Conditions, table and notes."""
    text = listed(table["columns"], table["rows"])
    notes = "\n".join(f"- {note}" for note in table["notes"])
    return f"{described(table['conditions'])}:\n\n{text}\n\n{notes}"


def listed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A column stands right where its name starts with `>`."""
    rule = ["---:" if c.startswith(">") else "---" for c in columns]
    lines = [[c.lstrip(">") for c in columns], rule, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    command(main)

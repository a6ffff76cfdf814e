"""The documentation is true: links lead somewhere, commands exist, and its Python code runs."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hlotune.cli import reference
from hlotune.cli.main import app, run_command
from hlotune.schedules.targets import kinds
from tests.support import interpreted_gpu
from tests.support.interpreted_gpu import INTERPRETED
from tests.support.tree import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
TUTORIALS = [DOCS / "quickstart.md", *sorted((DOCS / "tutorials").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(page.read_text()) if name == language]


WITH_PYTHON = [page for page in TUTORIALS if blocks(page, "python")]


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `tune ...` line in a block of code."""
    for code in blocks(page, ""):
        for line in code.splitlines():
            if line.startswith("tune "):
                yield shlex.split(line)


@pytest.mark.parametrize("page", [*PAGES, DOCS / "llms.txt", ROOT / "README.md"], ids=str)
def test_links_lead_to_files(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    local = [x for x in LINK.findall(text) if not re.match(r"\w+:", x)]
    assert [x for x in local if not (page.parent / x).exists()] == []


def test_each_page_is_in_the_site() -> None:
    index = (DOCS / "index.md").read_text() + (DOCS / "decisions" / "index.md").read_text()
    for page in PAGES:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name in index or name.startswith(("lab/", "decisions/")) or name == "index"


def shorter(words: list[str]) -> list[str]:
    """A command of a tutorial with a small budget, or few candidates."""
    words = list(words)
    if "--budget" in words:
        at = words.index("--budget")
        words[at : at + 2] = ["--trials", "12"]
    return [*words, "--count", "1"] if "export-candidates" in words else words


@pytest.mark.slow
@pytest.mark.parametrize("name", ["another_machine", "train_a_model"])
def test_commands_of_tutorials_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreted device plays the other machine's, and is never faster than its default."""
    interpreted_gpu.enter(monkeypatch.setitem)
    interpreted_gpu.give_workers(monkeypatch.setattr)
    for played in ("cuda:h100", "cuda:h200"):
        monkeypatch.setitem(kinds.NAMED, played, INTERPRETED)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for words in commands(DOCS / "tutorials" / f"{name}.md"):
        kept_by_xla = words[1] == "apply"
        assert run_command(shorter(words[1:])) == (1 if kept_by_xla else 0), words


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_commands_of_tutorials_are_commands_with_these_options(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while names := getattr(command, "commands", None):
            command = names[rest.pop(0)]
        options = {text for parameter in command.params for text in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= options, words


def test_the_page_of_commands_is_what_they_say(request: pytest.FixtureRequest) -> None:
    path = DOCS / "reference" / "cli.md"
    if request.config.getoption("--update-golden"):
        path.write_text(reference.page())
    assert path.read_text() == reference.page()


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """The marks of a page: `torch` where its code needs torch, which only `.venv-oldest` has."""
    needs_torch = any("import torch" in code for code in blocks(page, "python"))
    return [pytest.mark.torch] if needs_torch else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=marks(p), id=p.stem) for p in TUTORIALS if blocks(p, "python")]
)
def test_python_code_of_tutorials_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "python"))
    shorter = re.sub(r'budget="\w+"', "trials=2", code)
    exec(compile(shorter, page.name, "exec"), {"__name__": page.stem})

"""The commands and their options as one page: `python -m hlotune.cli.reference`."""

from collections.abc import Iterator
from typing import Any

import typer.main

from hlotune.cli.main import app

WIDTH = 96
TITLE = "# Commands\n\nWhat `tune COMMAND --help` prints, of all commands.\n"


def page() -> str:
    """The page in Markdown: a section for each command, in the order of `tune --help`."""
    return TITLE + "".join(section(name, text) for name, text in helps())


def section(name: str, text: str) -> str:
    return f"\n## {name}\n\n```text\n{text.strip()}\n```\n"


def helps() -> Iterator[tuple[str, str]]:
    """The help of each command, groups in front of what is in them."""
    waiting: list[tuple[str, Any, Any]] = [("tune", typer.main.get_command(app), None)]
    while waiting:
        name, command, parent = waiting.pop(0)
        word = name.rpartition(" ")[2]
        context = typer.Context(
            command, parent, word, max_content_width=WIDTH, terminal_width=WIDTH
        )
        yield name, command.get_help(context)
        inner = getattr(command, "commands", {})
        waiting[:0] = [(f"{name} {each}", found, context) for each, found in inner.items()]


if __name__ == "__main__":
    print(page(), end="")

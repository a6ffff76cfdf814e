"""One HTML file that loads nothing: its head, its style sheet, what stands around a page."""

import base64
import hashlib
from pathlib import Path

from hlotune.tuning_logs.page.markup import Markup, tag

STYLE = Path(__file__).with_name("style.css")


def document(*, title: str, heading: str, about: str, body: Markup) -> str:
    """The file.  `about` is the line below the heading, `body` what stands in `main`."""
    style = STYLE.read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=nothing_loaded(style)),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    top = tag(
        "header",
        tag("a", "To the report", href="#main", class_="skip"),
        tag("h1", heading),
        tag("p", about, class_="muted"),
        class_="top",
    )
    end = tag("footer", "Written by hlotune from recorded runs alone. This file loads nothing from "
              "anywhere and runs no script.")  # fmt: skip
    page = tag("body", top, tag("main", body, id="main"), end)
    return f"<!doctype html>\n{tag('html', head, page, lang='en')}\n"


def nothing_loaded(style: str) -> str:
    """The policy of a file: this style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"

"""Pieces that several parts of a report's page are made of."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hlotune.tuning_logs.evidence import KernelEvidence
from hlotune.tuning_logs.figures.canvas import Figure
from hlotune.tuning_logs.page.markup import Child, Markup, tag


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """The first cell of a row is its heading.  Columns of words begin with `<`."""
    words = [column.startswith("<") for column in columns]
    head = tag(
        "tr",
        *(
            tag("th", column.lstrip("<"), scope="col", class_="words" if is_words else None)
            for column, is_words in zip(columns, words, strict=True)
        ),
    )
    return tag(
        "div",
        tag(
            "table", tag("caption", caption), tag("thead", head),
            tag("tbody", *(_row(row, words) for row in rows)),
        ),
        class_="wide", tabindex=0, role="region", aria_label=caption,
    )  # fmt: skip


def _row(cells: Sequence[Child], words: Sequence[bool]) -> Markup:
    first, *others = cells
    rest = (
        tag("td", cell, class_="words" if is_words else None)
        for cell, is_words in zip(others, words[1:], strict=True)
    )
    return tag("tr", tag("th", first, scope="row"), *rest)


def figure(found: Figure) -> Markup:
    """A figure with its alternative text, which a screen reader reads in place of the image."""
    image = tag("div", Markup(found.inline()), role="img", aria_label=found.alt)
    wide = tag("div", image, class_="wide", tabindex=0, role="region", aria_label=found.title)
    return tag("figure", tag("figcaption", found.title), wide, id=f"figure-{found.name}")


def pairs(found: Iterable[tuple[str, Child]]) -> Markup:
    """Names and values, one below the other; those without a value are left out."""
    cells = (cell for name, value in found if value for cell in (tag("dt", name), tag("dd", value)))
    return tag("dl", *cells, class_="pairs")


def anchor(kernel: KernelEvidence) -> str:
    """The id of a kernel's page; keys are hashes, and those of made-up files may be anything."""
    return "kernel-" + "".join(c if c.isalnum() else "-" for c in kernel.report.key[:32])


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses of a report's pages, for the links between them."""

    overview: str
    of: Callable[[KernelEvidence], str]
    """The address of a kernel's page."""


def _inside(kernel: KernelEvidence) -> str:
    return f"#{anchor(kernel)}"


INSIDE = Places("#overview", _inside)
"""All pages stand in one file."""


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

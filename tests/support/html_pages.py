"""An HTML file looked at by its tags: references, ids, alternative texts, colours."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self

VOID = {"meta", "br", "hr", "img", "link", "input", "path", "use", "rect", "circle", "line"}
LOADING = {"src", "srcset", "action", "data", "poster", "background", "formaction", "ping"}
"""Attributes by which an element fetches something."""


@dataclass(frozen=True)
class Element:
    name: str
    attributes: dict[str, str]


@dataclass
class Page(HTMLParser):
    """Raises ValueError where elements are not closed in the order in which they were opened."""

    elements: list[Element] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    style: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, html: str) -> Self:
        page = cls()
        page.feed(html)
        page.close()
        if page.open:
            raise ValueError(f"expected all elements closed, got {page.open} open")
        return page

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID or "svg" in self.open:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"expected another element to be closed, got </{tag}>")

    def handle_data(self, data: str) -> None:
        (self.style if self.open[-1:] == ["style"] else self.text).append(data)

    def named(self, *names: str) -> list[Element]:
        return [e for e in self.elements if e.name in names]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    @property
    def ids(self) -> list[str]:
        return [e.attributes["id"] for e in self.elements if "id" in e.attributes]

    def references(self) -> list[str]:
        """All that the page leads to or loads, its own places left out."""
        found = []
        for element in self.elements:
            for name, value in element.attributes.items():
                if name in LOADING or name.endswith("href"):
                    found.append(value)
                found += re.findall(r"url\(([^)]*)\)", value)
        found += re.findall(r"@import[^;]*|url\([^)]*\)", "".join(self.style))
        return [x for x in found if not x.strip("'\"").startswith("#")]

    def scripts(self) -> list[Element]:
        """Elements that run something, by name or by an attribute."""
        return [
            e
            for e in self.elements
            if e.name in ("script", "iframe", "object", "embed", "foreignobject", "base", "form")
            or any(name.startswith("on") for name in e.attributes)
            or any("javascript:" in value.lower() for value in e.attributes.values())
        ]


def variables(css: str, selector: str) -> dict[str, str]:
    """Colours that the first rule of a selector, or of a media query, gives names."""
    body = css[css.index(selector) :]
    block = body[body.index("{") + 1 :]
    if selector.startswith("@media"):
        block = block[block.index("{") + 1 :]
    return dict(re.findall(r"--([a-z]+):\s*(#[0-9a-f]{6})", block[: block.index("}")]))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, `#rrggbb`, as guidelines of the web define it: 1 .. 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

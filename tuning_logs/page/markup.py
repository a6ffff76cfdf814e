"""HTML that is escaped by construction: plain text cannot become markup.

Children that are no `Markup` are text, which comes from records and is data: control characters
become escapes, and characters of HTML become references.  So do attributes.
"""

from html import escape

from hlotune.tuning_logs.text import escaped


class Markup(str):
    """HTML that was put together here."""

    __slots__ = ()


Child = str | Markup | None

VOID = ("meta", "br", "hr", "input", "link")


def tag(element: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element.  A trailing `_` of an attribute's name is left out, other `_` become `-`; an
    attribute that is None or False is left out, True has no value.
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in VOID:
        return Markup(f"<{element}{words}>")
    return Markup(f"<{element}{words}>{joined(*children)}</{element}>")


def joined(*children: Child) -> Markup:
    """Children one after the other; None is nothing."""
    return Markup("".join(_child(child) for child in children if child is not None))


def _child(child: str) -> str:
    return child if isinstance(child, Markup) else escape(escaped(child, keep="\n\t"), quote=False)


def _attribute(key: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(escaped(str(value)), quote=True)}"'

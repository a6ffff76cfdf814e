"""Text from records as it is printed: nothing in it acts on a terminal."""


def escaped(text: str, keep: str = "\n") -> str:
    r"""The same with each character that is not printable as an escape, as in `\x1b`.

    Such are control characters, marks that turn the direction of what follows, and halves of
    surrogate pairs; those in `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def is_plain(text: str, keep: str = "") -> bool:
    """Whether it is printed as it is."""
    return escaped(text, keep) == text


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

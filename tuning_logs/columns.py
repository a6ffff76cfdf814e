"""Which columns of a table a terminal has room for."""

from collections.abc import Mapping, Sequence


def fitting(widths: Mapping[str, int], spare: Sequence[str], room: int, gap: int = 2) -> list[str]:
    """Names of the columns that stay, in their order: of `spare` the first go first, as many as
    have to.

    Args:
        widths: characters that each column takes, by name.
        room: characters of a line.
        gap: characters between two columns.
    """
    kept = dict(widths)
    for name in spare:
        if sum(kept.values()) + gap * (len(kept) - 1) <= room:
            break
        kept.pop(name, None)
    return list(kept)


def left_out(names: Sequence[str]) -> str:
    """A line about columns without room; nothing of none."""
    if not names:
        return ""
    return f"no room for: {', '.join(names)} (a wider terminal, a pipe or --json shows all)"

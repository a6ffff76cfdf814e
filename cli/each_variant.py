"""Commands that take several sizes of a dimension, and do the same for each combination of them."""

import sys
from collections.abc import Sequence
from typing import Protocol

from hlotune.cli.printing import say
from hlotune.schedules.errors import HlotuneError


class OfSizes(Protocol):
    """A command with its options but for the sizes of dimensions."""

    def __call__(self, *, dim: list[str]) -> None: ...


def for_each(variants: Sequence[list[str]], command: OfSizes) -> None:
    """Runs a command for each combination of sizes; an error of one does not end the others.

    Raises the first of these errors in the end, once the others are said.  An error with the same
    text in several combinations, as that a program has no such dimension, is said once.
    """
    failed: dict[str, HlotuneError] = {}
    for sizes in variants:
        say(f"\n{' '.join(sizes)}:", file=sys.stderr)
        try:
            command(dim=sizes)
        except HlotuneError as error:
            failed.setdefault(str(error), error)
    first, *others = failed.values() or (None,)
    for other in others:
        say(f"tune: {other}", file=sys.stderr)
    if first is not None:
        raise first

"""Names of a program's arguments: its callable takes what the function that it came from took."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD
IN_A_ROW = (inspect.Parameter.POSITIONAL_ONLY, BY_NAME)


def names_of(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Of its first `count` arguments: "" for one by position alone, none for those of `*args`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function that is not Python's own
        return ()
    row = list(takewhile(lambda p: p.kind in IN_A_ROW, parameters))[:count]
    return tuple(p.name if p.kind is BY_NAME else "" for p in row)


def by_position(
    names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of a call in their order.

    Raises TypeError for a name that is not among the arguments that the program was loaded with, is
    given by position too, or leaves one out before it.
    """
    waiting = names[len(args) :]
    for name in named:
        if name in names[: len(args)]:
            raise TypeError(f"expected one {name}, got two: by position and by name; leave one out")
        if name not in waiting:
            have = ", ".join(n for n in names if n) or "none of them by name"
            raise TypeError(
                f"expected the arguments that the program was loaded with ({have}), got {name}; "
                "leave it out, or load the program with it"
            )
    found = {n: named[n] for n in waiting if n in named}
    if left_out := [n for n in waiting[: len(found)] if n not in found]:
        missing = left_out[0] or "an argument by position"
        raise TypeError(f"expected {missing} before {list(found)[-1]}, got none; pass it too")
    return (*args, *found.values())

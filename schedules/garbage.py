"""Python's search for objects that hold one another, put off while many objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (10_000, 20, 50)
"""Objects made until the youngest are searched, and how often that is until older ones are: imports
alone make half a million objects that stay."""


@contextmanager
def collected_later() -> Iterator[None]:
    """A time without that search, which otherwise goes over all objects of JAX again and again.

    To read a program and to cut it makes a hundred thousand objects that stay.  Where somebody has
    switched the search off it stays off.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def searched_seldom() -> None:
    """For a process of our own, before it imports much: a user's process searches as it is told."""
    gc.set_threshold(*SELDOM)

"""Python's search for objects that hold one another, put off while many objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

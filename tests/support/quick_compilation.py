"""XLA without LLVM's expensive passes: it compiles in half the time or less.

For what tests do not time: references, and kernels of devices that are interpreted here.  XLA's
own passes over HLO are those of any user.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OPTION = "jax_disable_most_optimizations"


@contextmanager
def quick_compilation() -> Iterator[None]:
    """For what this process compiles from now on, and not for processes that it starts."""
    import jax

    config: Any = jax.config
    before = config.read(OPTION)
    config.update(OPTION, True)
    try:
        yield
    finally:
        config.update(OPTION, before)

"""How long XLA took to compile what was called, as JAX tells its listeners."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jax import monitoring

from hlotune.hlo.mlir.versions import COMPILED


@dataclass
class Spent:
    """The seconds that compiling took; 0 where nothing was compiled, or JAX does not say."""

    seconds: float = 0.0


_open: list[Spent] = []
"""Those that are being added up."""


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event == COMPILED:
        for spent in _open:
            spent.seconds += duration_secs


@contextmanager
def compiling() -> Iterator[Spent]:
    """Adds up what is spent with compiling in the block."""
    if _listen not in _listening:
        monitoring.register_event_duration_secs_listener(_listen)
        _listening.append(_listen)
    _open.append(spent := Spent())
    try:
        yield spent
    finally:
        _open.remove(spent)


_listening: list[object] = []
"""The listener, once it was registered: JAX takes none back."""

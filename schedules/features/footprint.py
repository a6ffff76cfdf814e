"""What of a buffer's memory a nest touches inside each of its loops: as arrays."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.targets.cpu import LINE_BYTES

Floats = NDArray[np.floating[Any]]
GAP_BYTES = LINE_BYTES - 0.5
"""What lies less apart shares lines.  No whole number, so that rounding does not decide."""


@dataclass(frozen=True)
class Touched:
    """What one execution of each level touches of a buffer, `(L + 1, n)`, or of several."""

    bytes: Floats
    """Bytes of whole cache lines: a run shorter than a line costs a line."""
    elements: Floats
    run: Floats
    """Bytes that lie together."""

    def __getitem__(self, k: int) -> "Touched":
        """What is touched of one of several buffers, in the same memory."""
        return Touched(self.bytes[k], self.elements[k], self.run[k])


class LoopSpans(Protocol):
    """What the footprint of a nest is derived from: the role of `levels.Levels`."""

    @property
    def c(self) -> Contraction: ...

    @property
    def runs(self) -> NDArray[Any]:
        """`(L + 1, n)`: how often each level is executed."""
        ...

    def span(self, steps: tuple[tuple[str, float], ...]) -> Floats:
        """`(L + 1, n)`: elements between the first and the last that a level reads of a dimension
        with such steps along its axes."""
        ...


def touch(v: LoopSpans, x: Load, plain: NDArray[np.bool_], into: Touched) -> None:
    """Dimensions from the fastest on: what a gap of less than a line parts lies together.

    A copy lies together as a whole.
    """
    tensor, size = v.c.compute.tensor(x.tensor), v.c.element_bytes(x)
    into.elements[...] = 1
    runs: Floats = np.ones(v.runs.shape, dtype=np.float32)
    run = runs * size
    for d in range(len(x.index) - 1, -1, -1):
        steps = tuple((a, abs(w) / x.divisor(d)) for a, w in x.index[d].terms)
        span = np.minimum(v.span(steps), np.float32(tensor.shape[d]))
        if plain.any():
            pitch = np.float32(tensor.strides[d] * size)
            near = pitch - run < GAP_BYTES
            if near.any():
                run = np.where(near, run + (span - 1) * pitch, run)
            if not near.all():
                runs = np.where(near, runs, runs * span)
        np.multiply(into.elements, span, out=into.elements)
    into.run[...] = np.where(plain, run, into.elements * size)
    runs = np.where(plain, runs, np.float32(1))
    np.multiply(runs, np.maximum(into.run, LINE_BYTES), out=into.bytes)

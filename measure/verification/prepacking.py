"""The packed forms of a kernel's constants, as its own entries make them."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.runtime.loader import Host, Loaded
from hlotune.measure.verification.buffers import Guarded, Placement, guarded
from hlotune.measure.verification.inputs import Array
from hlotune.schedules.errors import WrongResult


def prepack(
    loaded: Loaded,
    values: Sequence[Array],
    host: Host,
    placement: Placement = "before",
    buffer: Callable[[int, Placement], Guarded] = guarded,
) -> dict[int, NDArray[np.uint8]]:
    """Position of a constant argument -> bytes of its packed form, in memory that `buffer` gives.

    Raises WrongResult where an entry fails or writes outside of what it was given.
    """
    packed: dict[int, NDArray[np.uint8]] = {}
    for form in loaded.built.packed:
        array = values[form.argument]
        source = buffer(array.nbytes, placement)
        source.data[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        target = buffer(form.bytes, placement)
        status = loaded.call(form.entry, [source.address], [target.address], 0, host)
        if status or not (source.intact and target.intact):
            raise WrongResult(
                f"expected {form.entry} to pack argument {form.argument} into {form.bytes} bytes, "
                f"got status {status} or a write beside its buffers; mend this schedule's packing"
            )
        packed[form.argument] = target.data
    return packed

"""References of the last kernels, kept as long as there is room for them."""

from hlotune.hlo.kernel import Kernel
from hlotune.measure.verification.references import References
from hlotune.schedules.targets.target import F32Operands

MOST_BYTES = 1 << 29
"""The most that cases of earlier kernels keep; the last kernel's are kept, however large."""


class Shelf:
    """References of kernels, the last ones used, as many as there is room for.

    A run looks at all its kernels, and at the end at their champions: what the oracle said before
    holds then too.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._all: dict[tuple[Kernel, F32Operands], References] = {}
        """The last used at the end."""

    def of(self, kernel: Kernel, f32_operands: F32Operands = "f32") -> References:
        last, asked = next(reversed(self._all.values()), None), (kernel, f32_operands)
        if last is not None and last.kernel != kernel:
            last.forget()
        self._all[asked] = self._all.pop(asked, References(*asked))
        while len(self._all) > 1 and sum(r.bytes for r in self._all.values()) > self._most_bytes:
            self._all.pop(next(iter(self._all)))
        return self._all[asked]

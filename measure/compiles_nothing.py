"""The part of a runner that a device of tests has nothing to do for."""

from collections.abc import Sequence

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Failure


class CompilesNothing:
    """One device, for which nothing is compiled ahead."""

    @property
    def width(self) -> int:
        return 1

    def compile_together(
        self,
        objects: Sequence[tuple[Kernel, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        spread: bool = False,
    ) -> None:
        """Nothing is compiled here."""

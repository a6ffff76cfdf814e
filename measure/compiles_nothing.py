"""The part of a runner that one device has nothing to do for, where nothing is compiled ahead."""

from collections.abc import Sequence

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Failure


class CompilesNothing:
    """One device, for which nothing is compiled ahead: a base of runners."""

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

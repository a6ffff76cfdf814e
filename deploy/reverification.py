"""Whether machine code is what was verified when it was recorded; if not, it is verified anew."""

from typing import Self

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Failure
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.finals import Final

ANEW = "its machine code is not what was recorded, and was verified anew"


class Vouching:
    """Lets pass what a record vouches for at once; all else is verified, in a worker process.

    A schedule becomes other machine code where LLVM or our code generation has changed without
    their versions saying so, and old records name no code at all.
    """

    def __init__(self, target: Target, numerics: Numerics) -> None:
        self._runner = ProcessRunner(target, numerics)
        self.verified: set[str] = set()
        """Keys of the kernels that were verified anew."""

    def check(self, kernel: Kernel, built: Built, final: Final | None) -> None:
        """Raises WrongResult where the code is not as recorded, and does not hold either."""
        if (final is not None and final.code == built.key) or kernel.key in self.verified:
            return
        found = self._runner.verify(kernel, built)
        if isinstance(found, Failure):
            raise WrongResult(
                f"expected the machine code that was recorded, or as good, got other code with a "
                f"{found.kind} ({found.message}); tune this kernel again",
                kernels=(kernel.key,),
            )
        self.verified.add(kernel.key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

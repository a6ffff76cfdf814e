"""Every error of hlotune, in one tree.

HlotuneError
 ├─ ScheduleError      (ValueError)           a step does not apply to this loop nest
 ├─ UnsupportedKernel  (NotImplementedError)  no compute can be made of this kernel
 ├─ ProgramError       (ValueError)           the input is no program, or not one we can take
 ├─ TargetError        (ValueError)           the target is unknown, or is not this machine
 ├─ BuildError         (RuntimeError)         LLVM refused what we emitted
 ├─ WrongResult        (ArithmeticError)      a tuned program or kernel disagrees with the oracle
 ├─ DatabaseError      (OSError)              the database cannot be opened, read or written
 ├─ ModelError         (ValueError)           a file holds no cost model, or not one we can use
 └─ NoRecord           (LookupError)          nothing is recorded for what was asked
A message says what was expected, what came, and what to do.
"""


class HlotuneError(Exception):
    """Base of all errors that hlotune raises on purpose."""


class ScheduleError(HlotuneError, ValueError):
    """A scheduling step does not apply here."""


class UnsupportedKernel(HlotuneError, NotImplementedError):
    """No compute can be made of this kernel."""


class ProgramError(HlotuneError, ValueError):
    """The input is no program, or not one that hlotune can take."""


class TargetError(HlotuneError, ValueError):
    """The target is unknown, or is not this machine."""


class BuildError(HlotuneError, RuntimeError):
    """LLVM refused what was emitted."""


class WrongResult(HlotuneError, ArithmeticError):
    """A tuned kernel or program disagrees with the oracle."""

    def __init__(
        self, message: str, kernels: tuple[str, ...] = (), sites: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.kernels = kernels
        """Keys of the kernels to blame."""
        self.sites = sites
        """Where these stand, with labels: `dot1 (dot 64x784x512)`."""


class DatabaseError(HlotuneError, OSError):
    """The database cannot be opened, read or written."""


class ModelError(HlotuneError, ValueError):
    """A file holds no cost model, or none that can be used here."""


class NoRecord(HlotuneError, LookupError):
    """Nothing is recorded for what was asked."""


def require(condition: bool, who: str, message: str) -> None:
    """What every step and every form asks of a nest.

    Raises ScheduleError, which begins with the step or the stage that it is about.
    """
    if not condition:
        raise ScheduleError(f"{who}: {message}")

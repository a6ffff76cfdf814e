"""Every error of hlotune, in one tree::

 HlotuneError
  ├─ ScheduleError      (ValueError)           a step does not apply to this loop nest
  ├─ UnsupportedKernel  (NotImplementedError)  no compute can be made of this kernel
  ├─ ProgramError       (ValueError)           the input is no program, or not one we can take
  ├─ TargetError        (ValueError)           the target is unknown, or is not this machine
  ├─ BuildError         (RuntimeError)         LLVM refused what we emitted
  ├─ WrongResult        (ArithmeticError)      a tuned program or kernel disagrees with the oracle
  ├─ DatabaseError      (OSError)              the database cannot be opened, read or written
  ├─ ModelError         (ValueError)           a file holds no cost model, or not one we can use
  ├─ VersionError       (ImportError)          a library is of a version that lacks what is needed
  └─ NoRecord           (LookupError)          nothing is recorded for what was asked

A message says what was expected, what came, and what to do.
"""

import os
import traceback
from pathlib import Path


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


class VersionError(HlotuneError, ImportError):
    """A library is of a version that lacks what hlotune needs of it."""


class NoRecord(HlotuneError, LookupError):
    """Nothing is recorded for what was asked."""


SHARED = (DatabaseError, ModelError, TargetError)
"""Errors that concern a whole run, whichever kernel was at work when they came."""


def reason_alone(error: Exception) -> str:
    """Why one kernel is left alone that raised an error, where the others go on.

    An error that is none of hlotune's own is a fault of hlotune: the reason says where it was
    raised, and with HLOTUNE_DEBUG set its traceback goes to stderr.

    Raises the error itself where it is one of `SHARED`.
    """
    if isinstance(error, SHARED):
        raise error
    if isinstance(error, HlotuneError):
        return str(error)
    if os.environ.get("HLOTUNE_DEBUG"):
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" in {Path(p.filename).name}, line {p.lineno}" for p in place)
    return (
        f"a fault of hlotune: {type(error).__name__}: {error}{where}; the other kernels are tuned: "
        "report it with the traceback that HLOTUNE_DEBUG=1 shows"
    )


def require(condition: bool, who: str, message: str) -> None:
    """What every step and every form asks of a nest.

    Raises ScheduleError, which begins with the step or the stage that it is about.
    """
    if not condition:
        raise ScheduleError(f"{who}: {message}")

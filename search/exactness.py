"""Candidates that only reorder sums and lose more of their accuracy by that than a program may."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from hlotune.deploy.accuracy import allowed
from hlotune.measure.trial import Measurement
from hlotune.schedules.numerics import Numerics
from hlotune.search.tasks import Task


@dataclass
class Exactness:
    """What the program may be off, were it one kernel: so many times the default's error."""

    task: Task
    numerics: Numerics
    of_default: Callable[[], float | None]
    """The default's error over the largest value of its result; None where nobody knows.  It is
    asked for once, and only where a candidate is off by more than is always allowed."""
    _most: float | None = field(default=None, init=False)

    def allows(self, found: Measurement) -> bool:
        """Whether a candidate is near enough; what does more than reorder sums was judged by the
        bounds of its algorithm.
        """
        error = found.relative_error or 0.0
        if found.numerics != "strict" or error <= self._allowed(0.0):
            return True
        if self._most is None:
            of_default = self.of_default()
            self._most = inf if of_default is None else self._allowed(of_default)
        return error <= self._most

    def _allowed(self, of_default: float) -> float:
        dtypes = (r.dtype for r in self.task.compute.results)
        return max(allowed(x, of_default, self.numerics) for x in dtypes)

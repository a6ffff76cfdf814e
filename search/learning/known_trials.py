"""What a run begins with of a kernel: its trials under the same conditions."""

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.outcomes import is_mishap
from hlotune.tuning_logs.database import Conditions, Database

MOST_KNOWN = 1200
"""A run begins with so many known trials of all kernels: each takes it some milliseconds."""
FEWEST_KNOWN = 64
"""It begins with so many known trials of each kernel at least, however many kernels there are."""


def share_of_known(kernels: int) -> int:
    """Known trials of one kernel that a run of so many kernels begins with."""
    return max(FEWEST_KNOWN, MOST_KNOWN // max(1, kernels))


def known_trials(
    database: Database,
    kernel: Kernel,
    kernels: int,
    run: str,
    numerics: Numerics,
    under: Conditions,
) -> list[Trial]:
    """The trials that are known under the same conditions, for a run of so many kernels.

    Without those of the default, which is timed anew in each run, and those on which the device
    failed, which may be tried again.
    """
    most = share_of_known(kernels)
    trials = database.trials(kernel.key, numerics=numerics, most=most, own=run, **under)
    return [t for t in trials if t.candidate.schedule.algorithm != XLA and not is_mishap(t)]

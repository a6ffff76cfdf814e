"""Why each site of a program is replaced, or left to the default compiler."""

from dataclasses import dataclass, replace
from typing import Literal

from hlotune.hlo.sites.sites import Site
from hlotune.hlo.sites.tiny import tiny
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.decisions import NEVER_TUNED
from hlotune.tuning_logs.finals import Paired

Status = Literal["tuned", "kept default", "no record", "failed", "covered", "too small"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What was done with a site, and why.

    `failed`: its schedule could not be used.  `covered`: another site that shares operations was
    replaced instead.  `too small`: a kernel of it takes less time than is worth a call.
    """

    site: Site
    status: Status
    reason: str
    schedule: Schedule | None = None
    """The schedule of the code that stands in the site's place; None where it is the default's."""
    paired: Paired | None = None
    """The comparison with the default that decided."""
    jaxlib: str | None = None
    """The version whose records prove a schedule faster, where those of this version prove none."""

    @property
    def algorithm(self) -> str | None:
        return self.schedule.algorithm if self.schedule else None

    @property
    def promised_s(self) -> float:
        """Seconds that the records promise to save in one run of the program."""
        return gain_s(self.paired) * self.site.weight if self.paired else 0.0

    def __str__(self) -> str:
        return f"{self.site.name}  {self.site.label}  {self.status}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Reasons:
    """What was done with the sites of a program.  Whether kernels without a record are too small
    for one is found when it is asked for: their texts have to be read for that.
    """

    known: tuple[Explanation, ...]
    target: Target

    def explain(self) -> tuple[Explanation, ...]:
        """One line a site, alternatives included."""
        return tuple(_with_size(x, self.target) for x in self.known)


def _with_size(known: Explanation, target: Target) -> Explanation:
    if (known.status, known.reason) != ("no record", NEVER_TUNED):
        return known
    small = tiny(known.site, target)
    if small is None:
        return known
    return replace(known, status="too small", reason=f"left as it is: {small}")


def gain_s(paired: Paired) -> float:
    return paired.default_time_s - paired.tuned_time_s

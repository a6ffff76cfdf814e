"""The replaced kernels of a program against their defaults again: each by itself, and today.

What a record says is of the minutes of its run, and of another process.
"""

from collections.abc import Callable, Iterator

from hlotune.codegen.built import Built
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.pairs import Referee, compared
from hlotune.hlo.sites.sites import Site
from hlotune.measure.trial import Candidate, Failure
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import WrongResult
from hlotune.tuning_logs.finals import Paired

PAIRS = 31
"""The most pairs of samples of one kernel, as many as a final has."""
TIMING_S = 1.5
"""The time for the pairs of one kernel; checking it and compiling its default come before."""


Found = tuple[str, Paired | Failure]
"""Key of a kernel, and both sides timed in turns or why they were not."""


def timed_again(tuned: TunedFunction, tell: Callable[[str], object]) -> Iterator[Found]:
    """One kernel that was put in after the other.

    In a worker process, thoroughly verified first, by the clock `call` and in the cache mode
    `model`, for `TIMING_S` at most.  `tell` is told what comes next, in words.

    Raises WrongResult where a kernel proves wrong now.
    """
    with ProcessRunner(tuned.target, tuned.numerics) as runner:
        yield from timed_by(runner, tuned, tell)


def timed_by(
    runner: Referee, tuned: TunedFunction, tell: Callable[[str], object]
) -> Iterator[Found]:
    """Does what `timed_again` does: times each kernel once, however many places it has."""
    schedules = {e.site: e.schedule for e in tuned.explain()}
    objects = dict[str, tuple[Site, Candidate, Built]]()
    for r in tuned.replacements:
        schedule = schedules.get(r.site)
        if r.built is not None and schedule is not None:
            kernel = r.site.kernel
            objects[kernel.key] = r.site, Candidate(kernel, schedule), r.built
    for number, (key, (site, candidate, built)) in enumerate(objects.items(), 1):
        tell(f"[{number}/{len(objects)}] {site.label}: comparing with its default")
        found = compared(runner, candidate, built, pairs=PAIRS, limit_s=TIMING_S)
        if isinstance(found, Failure) and found.kind == "wrong_result":
            name = f"{site.name} ({site.label})"
            raise WrongResult(
                f"expected results of {name} as the oracle has them, got {found.message}; tune "
                "this kernel again",
                kernels=(key,),
                sites=(name,),
            )
        yield key, found

"""What there is to tune in a program: its distinct kernels, each with a search space."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.errors import TargetError, UnsupportedKernel, reason_alone
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import arithmetic_type, flops_of
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.targets.target import Kind, Target


@dataclass(frozen=True, slots=True)
class Task:
    kernel: Kernel
    label: str
    weight: float
    """How often the kernel runs in one run of the program, at all its sites together."""
    compute: Compute
    space: Space

    @property
    def flops(self) -> int:
        """Arithmetic of one run of the kernel, without padding and inserted zeros."""
        return flops_of(self.compute)

    @property
    def dtype(self) -> str:
        """Of the peak that its speed is held against."""
        return arithmetic_type(self.compute)


@dataclass(frozen=True, slots=True)
class Skipped:
    label: str
    reason: str


SPACES: dict[Kind, Callable[..., Space]] = {"cpu": space_of}
"""The space of `(compute, target, numerics)`, by the kind of target."""


def tasks(
    places: Sequence[Site], target: Target, numerics: Numerics = "standard"
) -> tuple[tuple[Task, ...], tuple[Skipped, ...]]:
    """For each anchor its largest fused kernel that has a space; equal kernels are one task.

    Under `strict` numerics the spaces hold no algorithms that do more than reorder sums.  A kernel
    whose compute or space raises an error is skipped, and the next largest of its anchor is taken.

    Raises TargetError for a kind of target that nothing is searched for.
    """
    if target.kind not in SPACES:
        raise TargetError(
            f"expected a target of kind {', '.join(SPACES)}, got {target.kind}; "
            "nothing is tuned for it yet"
        )
    found: dict[str, Task] = {}
    skipped: list[Skipped] = []
    for alternatives in anchors(places):
        task, failed = _first_supported(alternatives, target, numerics)
        skipped += failed
        if task is None:
            continue
        before = found.get(task.kernel.key)
        weight = task.weight + (before.weight if before else 0)
        found[task.kernel.key] = Task(task.kernel, task.label, weight, task.compute, task.space)
    return tuple(found.values()), tuple(skipped)


def anchors(found: Sequence[Site]) -> Iterator[tuple[Site, ...]]:
    """The alternatives of each anchor, the largest first."""
    for _, alternatives in groupby(found, key=lambda s: (s.path, s.root)):
        yield tuple(alternatives)


def _first_supported(
    alternatives: Sequence[Site], target: Target, numerics: Numerics
) -> tuple[Task | None, list[Skipped]]:
    """The task of an anchor, and what is said of kernels that were passed over.

    That a fused kernel has no rule is said only where no alternative has one; a fault is said
    always.
    """
    unsupported, faults = list[Skipped](), list[Skipped]()
    for site in alternatives:
        try:
            compute = compute_of(graph_of(site.kernel))
            space = SPACES[target.kind](compute, target, numerics)
            return Task(site.kernel, site.label, site.weight, compute, space), faults
        except UnsupportedKernel as error:
            unsupported.append(Skipped(site.label, str(error)))
        except Exception as error:
            faults.append(Skipped(site.label, reason_alone(error)))
    return None, faults or unsupported[:1]

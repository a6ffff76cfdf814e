"""What there is to tune in a program: its distinct kernels, each with a search space."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site
from hlotune.hlo.sites.tiny import tiny
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.algorithms.algorithm import AlgorithmSpace
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.errors import UnsupportedKernel, reason_alone
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import arithmetic_type, flops_of
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.gpu.searched import SearchedSpace
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.targets.kinds import CPU, GPU, TPU
from hlotune.schedules.targets.target import Kind, Target
from hlotune.search.default_lag import OTHER_LAG, default_lag
from hlotune.search.learning.gpu_spaces import guessed_space


@dataclass(frozen=True, slots=True)
class Task:
    kernel: Kernel
    label: str
    weight: float
    """How often the kernel runs in one run of the program, at all its sites together."""
    compute: Compute
    space: Space
    rivals: tuple[Site, ...] = ()
    """Sites that share operations with its own: other forms of the same part of the program."""
    default_lag: float = 1.0
    """How many times its roofline the default compiler takes, at a guess."""

    @property
    def flops(self) -> int:
        """Arithmetic of one run of the kernel, without padding and inserted zeros."""
        return flops_of(self.compute)

    @property
    def bytes(self) -> int:
        """The bytes of all arguments and results, each counted once."""
        return sum(t.bytes for t in (*self.compute.arguments, *self.compute.results))

    @property
    def moved_bytes(self) -> int:
        """Bytes of arguments and results that one run moves."""
        return self.compute.moved_bytes

    @property
    def dtype(self) -> str:
        """The element type of the peak that its speed is held against."""
        return multiplied_type(self.compute, self.space)


def multiplied_type(compute: Compute, space: Space) -> str:
    """The element type of the peak that limits a kernel by the schedules of its space."""
    if isinstance(space, SearchedSpace) and space.rounds:
        return "tf32"
    return arithmetic_type(compute)


@dataclass(frozen=True, slots=True)
class Skipped:
    label: str
    reason: str


Searched = AlgorithmSpace | AlgorithmsSpace | SearchedSpace
SPACES: dict[Kind, Callable[..., Searched]] = {
    CPU: space_of,
    GPU: guessed_space,
    TPU: guessed_space,
}
"""The space of `(compute, target, numerics)`, by the kind of target."""


def tasks(
    places: Sequence[Site], target: Target, numerics: Numerics = "standard"
) -> tuple[tuple[Task, ...], tuple[Skipped, ...]]:
    """The kernels of the first sites that have a space and share no operations; equal kernels are
    one task.

    Sites that share operations with these are the rivals of their tasks.  Under `strict` numerics
    the spaces hold no algorithms that do more than reorder sums.  A kernel whose compute or space
    raises an error is skipped, and so is one that is tiny.
    """
    tried = _Tried(target, numerics)
    taken, covered = list[Site](), Covered()
    for site in places:
        if not covered.overlaps(site) and tried.task(site) is not None:
            taken.append(site)
            covered.add(site)
    chosen = {id(s) for s in taken}
    rivals = _by_operation([s for s in places if id(s) not in chosen and tiny(s, target) is None])
    found: dict[str, Task] = {}
    for site in taken:
        task, before = tried.made[site.kernel], found.get(site.kernel.key)
        assert task is not None, "only sites with a task are taken"
        found_here = {n: x for op in site.ops for n, x in rivals[site.path, op]}
        others = tuple(found_here[n] for n in sorted(found_here))
        if before is not None:
            others, weight = (*before.rivals, *others), before.weight + site.weight
            found[site.kernel.key] = replace(before, weight=weight, rivals=others)
        else:
            found[site.kernel.key] = replace(task, weight=site.weight, rivals=others)
    return tuple(found.values()), tuple(tried.told(places, taken))


class Covered:
    """The operations of some sites, by the region that they stand in."""

    def __init__(self) -> None:
        self._ops = defaultdict[tuple[int, ...], set[int]](set)

    def add(self, site: Site) -> None:
        self._ops[site.path] |= site.ops

    def overlaps(self, site: Site) -> bool:
        """Whether a site shares an operation with any of them."""
        return not self._ops[site.path].isdisjoint(site.ops)


def _by_operation(
    sites: Sequence[Site],
) -> defaultdict[tuple[tuple[int, ...], int], list[tuple[int, Site]]]:
    """The sites that have an operation, each with its number, by region and operation."""
    found = defaultdict[tuple[tuple[int, ...], int], list[tuple[int, Site]]](list)
    for n, site in enumerate(sites):
        for op in site.ops:
            found[site.path, op].append((n, site))
    return found


def other_forms(losing: Sequence[Task], known: set[Kernel]) -> Iterator[Site]:
    """A site of each other form of kernels that are no faster than their defaults; those in `known`
    are left out.  Its weight is that of all sites of its kernel.
    """
    sites = {id(site): site for task in losing for site in task.rivals}.values()
    weights: dict[Kernel, float] = {}
    for site in sites:
        weights[site.kernel] = weights.get(site.kernel, 0.0) + site.weight
    first = {site.kernel: site for site in reversed(sites)}
    for kernel, weight in weights.items():
        if kernel not in known:
            yield replace(first[kernel], weight=weight)


def task_of(site: Site, target: Target, numerics: Numerics) -> Task:
    """The task of one site.  Raises UnsupportedKernel where it has no compute or no space."""
    graph = graph_of(site.kernel)
    compute = compute_of(graph)
    space = searched(compute, target, numerics)
    lag = default_lag(graph) if target.kind == CPU else OTHER_LAG
    return Task(site.kernel, site.label, site.weight, compute, space, default_lag=lag)


def searched(compute: Compute, target: Target, numerics: Numerics = "standard") -> Searched:
    """The space of a compute on a target.

    Raises UnsupportedKernel where there is no rule for the compute.
    """
    return SPACES[target.kind](compute, target, numerics)


@dataclass
class _Tried:
    """The tasks of kernels, each made once, and the reasons why others have none."""

    target: Target
    numerics: Numerics

    def __post_init__(self) -> None:
        self.made: dict[Kernel, Task | None] = {}
        self.unsupported: dict[Kernel, Skipped] = {}
        self.faults: dict[Kernel, Skipped] = {}

    def task(self, site: Site) -> Task | None:
        if site.kernel not in self.made:
            self.made[site.kernel] = None if tiny(site, self.target) else self._task(site)
        return self.made[site.kernel]

    def _task(self, site: Site) -> Task | None:
        try:
            return task_of(site, self.target, self.numerics)
        except UnsupportedKernel as error:
            self.unsupported[site.kernel] = Skipped(site.label, str(error))
        except Exception as error:
            self.faults[site.kernel] = Skipped(site.label, reason_alone(error))
        return None

    def told(self, places: Sequence[Site], taken: Sequence[Site]) -> Iterator[Skipped]:
        """What is reported about kernels that were passed over: all errors, and that a kernel has
        no rule where no site that shares operations with it has one either; of several such sites
        the first is named.
        """
        covered = Covered()
        for site in taken:
            covered.add(site)
        for site in places:
            if (fault := self.faults.get(site.kernel)) is not None:
                yield fault
                covered.add(site)
        for site in places:
            skipped = self.unsupported.get(site.kernel)
            if skipped is not None and not covered.overlaps(site):
                yield skipped
                covered.add(site)

"""One pass over cases: fresh processes of all contestants, and the machine that they run on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES
from benchmarks.operations import PEAK_NAMES
from benchmarks.peers.contestants import BOTH, Contestant, Weights
from benchmarks.peers.passes import Pass, keep, kept, key_of
from benchmarks.peers.process import Refusal, Worker
from benchmarks.peers.records import OwnTime, Record, own_time, record
from benchmarks.peers.roofs import Peaks
from benchmarks.peers.rounds import Effort, entries, measured, prepared
from benchmarks.results import conditions
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.timing.core_sharing_probe import Probe
from hlotune.measure.timing.timing import Apart
from hlotune.measure.trial import CacheMode
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.targets.cpu import CpuTarget

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Arena:
    target: CpuTarget
    workers: Sequence[Worker]
    builder: ProcessBuilder
    runner: ProcessRunner
    conditions: Mapping[str, Any]
    """The conditions of the machine, and under `versions` those of the libraries that take part."""
    effort: Effort
    database: Path
    cache: CacheMode
    apart: Apart

    def lacks(self, case: str, passes: int) -> bool:
        """Whether fewer passes than that were made with these schedules and versions."""
        found = kept(case)
        return len(found) < passes or found[-1].key != self._key(self._records(case))

    def measure(self, case: str) -> Pass:
        records = self._records(case)
        key = self._key(records)
        outcomes = measured(case, CASES[case], self.workers, self.effort, self.apart)
        found = Pass(
            case=case,
            key=key,
            conditions=self.conditions,
            status={w: r.status for w, r in records.items()},
            own=self._own(case, key, records),
            outcomes=outcomes,
        )
        keep(found)
        return found

    def _own(
        self, case: str, key: str, records: Mapping[Weights, Record]
    ) -> Mapping[Weights, OwnTime | None]:
        """The kernels' own times; those of an earlier pass where they have all that is wanted."""
        moved = Peaks.of([self.conditions]).limiting_bytes(case, self.target)
        element = PEAK_NAMES[CASES[case].element]
        return timed_before(case, key, with_read=moved > 0) or {
            w: own_time(r, element, self.builder, self.runner, read_bytes=moved)
            for w, r in records.items()
        }

    def prepare(self, case: str) -> Mapping[str, Refusal]:
        """Compiles all forms and compares their results; what is compiled stays on disk."""
        operation = CASES[case]
        found = entries(self.workers, operation)
        refused = prepared(case, operation, found, self.effort)
        for worker in self.workers:
            worker.ask({"do": "drop"}, self.effort.turn_limit_s)
        return refused

    def _records(self, case: str) -> dict[Weights, Record]:
        kinds = BOTH if CASES[case].has_weights else BOTH[:1]
        return {w: record(case, w, self.database, self.target, self.cache) for w in kinds}

    def _key(self, records: Mapping[Weights, Record]) -> str:
        schedules = [str(r.schedule.to_json()) for r in records.values()]
        took_part = str(sorted(self.conditions["versions"].items()))
        return key_of(self.target.fingerprint, toolchain().key, took_part, *schedules)


def timed_before(
    case: str, key: str, *, with_read: bool = False
) -> Mapping[Weights, OwnTime | None]:
    """The kernels' own times of an earlier pass with these schedules and versions, if any.

    Nothing where a read is wanted beside each and one has none: passes of before had none.
    """
    found = kept(case)
    own = found[-1].own if found and found[-1].key == key else {}
    lacks_read = any(o and o.read_bytes_per_s is None for o in own.values())
    return {} if with_read and lacks_read else own


@contextmanager
def arena(
    target: CpuTarget,
    found: Iterable[Contestant],
    effort: Effort,
    database: Path,
    cache: CacheMode,
) -> Iterator[Arena]:
    """Starts all workers, and says which do not come; then measures peaks, while all are idle."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(c, target.threads)) for c in found]
        took_part = versions(workers, print)
        builder = stack.enter_context(ProcessBuilder(target))
        runner = stack.enter_context(ProcessRunner(target))
        properties = runner.properties()
        under = {
            **conditions(target, properties),
            "read_bytes_per_s": properties.read_bytes_per_s,
            "tuned_for": cache,
            "versions": took_part,
        }
        apart = Probe(target).apart
        yield Arena(target, workers, builder, runner, under, effort, database, cache, apart)


def versions(workers: Sequence[Worker], say: Callable[[str], None]) -> dict[str, str]:
    found = {}
    for worker in workers:
        version, name = worker.version, worker.contestant.name
        if isinstance(version, Refusal):
            say(f"{name} does not take part: {version.message}; see `make bench-peers`")
        found[name] = ABSENT if isinstance(version, Refusal) else version
    return found

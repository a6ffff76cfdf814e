"""What limits a case, multiply-adds or reading, and how much of that its kernel reaches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from benchmarks.cases import CASES
from benchmarks.jax_operations import least_bytes
from benchmarks.operations import PEAK_NAMES
from benchmarks.peers.records import OwnTime
from hlotune.schedules.targets.cpu import CpuTarget

FMA = "FMA"
READ = "read"
"""Timed in turns with the kernel."""
FASTEST_READ = "fastest read"
"""The fastest read of all passes, for a kernel beside which none was timed: memory may have given
half of it then.
"""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of the machine, the largest of some minutes: noise only makes them smaller."""

    flop_per_s: Mapping[str, float]
    read_bytes_per_s: float

    @classmethod
    def of(cls, conditions: Iterable[Mapping[str, Any]]) -> Self:
        """The peaks of one or more passes, from the conditions that each was measured under."""
        found = list(conditions)
        names = {name for c in found for name in c["peak_flop_per_s"]}
        flops = {n: max(c["peak_flop_per_s"].get(n, 0.0) for c in found) for n in names}
        return cls(flops, max(c["read_bytes_per_s"] for c in found))

    def limiting_bytes(self, case: str, target: CpuTarget) -> int:
        """What a case moves at least, where that takes longer than its arithmetic; else 0.

        Memory limits what does not fit into the last cache; that of others is not drawn.
        """
        operation = CASES[case]
        moved, peak = least_bytes(operation), self.flop_per_s.get(PEAK_NAMES[operation.element])
        arithmetic_s = operation.flops / peak if peak else 0.0
        is_read = moved > target.l3_bytes and moved / self.read_bytes_per_s > arithmetic_s
        return moved if is_read else 0

    def share(
        self, case: str, target: CpuTarget, own: Sequence[OwnTime]
    ) -> tuple[str, float | None]:
        """What limits a case, and how much of that its own times reach; None where nothing tells.

        Rates are those beside each time, else the largest of all; what was timed beside a read is
        a share of that.
        """
        if any(o.read_bytes_per_s for o in own):
            return self._share_of_read(least_bytes(CASES[case]), own)
        if moved := self.limiting_bytes(case, target):
            return self._share_of_read(moved, own)
        operation = CASES[case]
        peak = self.flop_per_s.get(PEAK_NAMES[operation.element])
        rates = [(o.seconds, o.peak_flop_per_s or peak) for o in own]
        shares = [operation.flops / (seconds * rate) for seconds, rate in rates if rate]
        return FMA, median(shares) if shares else None

    def _share_of_read(self, moved: int, own: Sequence[OwnTime]) -> tuple[str, float | None]:
        """Times without a read beside them count only where none has one."""
        if not own:
            return READ, None
        beside = [moved / (o.seconds * o.read_bytes_per_s) for o in own if o.read_bytes_per_s]
        if beside:
            return READ, median(beside)
        return FASTEST_READ, median(moved / (o.seconds * self.read_bytes_per_s) for o in own)

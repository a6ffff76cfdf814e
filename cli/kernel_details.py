"""Details that `tune kernels` shows on request: counts of operations, and times of kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlotune.cli.printing import print_table, say

if TYPE_CHECKING:
    from hlotune.hlo.calling.operation_counts import Counts
    from hlotune.hlo.frontends.program import Program
    from hlotune.hlo.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per call of a program and of its kernels, as XLA compiles them, on this machine."""

    program_s: float
    kernels_s: Mapping[str, float]
    """Seconds per call of each kernel alone, by its key, without those that XLA cannot compile
    alone."""

    def share(self, key: str, calls: float) -> float | None:
        """The share of the program's time that so many calls of a kernel take when it runs alone.

        It is None where the kernel was not timed.
        """
        found = self.kernels_s.get(key)
        return None if found is None else calls * found / self.program_s


def operations_of(program: "Program") -> "Counts":
    """The counts of a program's operations; the import waits until the program is loaded."""
    from hlotune.hlo.calling.operation_counts import counts_of

    return counts_of(program)


def measured(program: "Program", kernels: "Mapping[str, Kernel]") -> Times:
    """Times the program, then each kernel alone, in turns with other tuners of the machine."""
    from hlotune.deploy.default_time import default_time_s
    from hlotune.measure.machine.machine_lock import alone
    from hlotune.measure.machine.targets import host_target
    from hlotune.measure.workers.runner import ProcessRunner
    from hlotune.schedules.errors import ProgramError

    found = dict[str, float]()
    with alone():
        whole_s = default_time_s(program)
    with ProcessRunner(host_target()) as runner:
        for key, kernel in kernels.items():
            try:
                found[key] = runner.default(kernel).time_s
            except ProgramError:
                continue
    return Times(whole_s, found)


def counts_json(counts: "Counts") -> dict[str, Any]:
    return {
        name: {
            "before": counts.before.get(name, 0),
            "after": counts.after.get(name, 0),
            "fused": counts.fused.get(name, 0),
        }
        for name in counts.names
    }


def print_counts(counts: "Counts") -> None:
    """Prints a table with a row for each operation, and a row of sums."""
    columns = ("operation", ">before XLA", ">after", ">in its fusions")
    parts = (counts.before, counts.after, counts.fused)
    rows = [(name, *(str(part.get(name, 0)) for part in parts)) for name in counts.names]
    print_table(columns, [*rows, ("all", *(str(sum(part.values())) for part in parts))])
    say(
        "operations by HLO's names; those of loops and branches count once, and the functions of "
        "scalars in reductions do not\n"
    )

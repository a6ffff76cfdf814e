"""What `tune kernels` shows on request: counts of operations, and where a program's time goes."""

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
    """Calls as XLA compiles them, on this machine."""

    program_s: float
    kernels_s: Mapping[str, float]
    """By key; none of a kernel that XLA does not compile alone."""

    def share(self, key: str, calls: float) -> float | None:
        """Of the program's time, what so many calls of a kernel take alone."""
        found = self.kernels_s.get(key)
        return None if found is None else calls * found / self.program_s


def operations_of(program: "Program") -> "Counts":
    """The operations of a loaded program: jax is not imported before one is."""
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
    """A row for each operation, and their sums."""
    columns = ("operation", ">before XLA", ">after", ">in its fusions")
    parts = (counts.before, counts.after, counts.fused)
    rows = [(name, *(str(part.get(name, 0)) for part in parts)) for name in counts.names]
    print_table(columns, [*rows, ("all", *(str(sum(part.values())) for part in parts))])
    say(
        "operations by HLO's names; those of loops and branches count once, and the functions of "
        "scalars in reductions do not\n"
    )

"""The one model of a processor's core: what it takes and gives in a cycle, and when it is full.

Costs of features, first candidates, limits and decisions of emitted code all read these rates from
their target (`CpuTarget.rates`).  They are those of the x86 cores of 2020 and later, from
measurements (`docs/lab/`) and their makers' guides; a learned model corrects what they say of the
machine at hand.  A kind of core that differs gets a row in `BY_ISA`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """Times are cycles of one core, and sizes are bytes, unless a name says otherwise."""

    # arithmetic -----------------------------------------------------------------------------------
    multiply_adds: int = 2
    """Multiply-adds of vectors, and as many loads, that begin in a cycle."""
    add_latency: int = 4
    """Cycles until a sum can be added to again."""
    vectors_a_multiply_add: float = 2.0
    """Simple operations on vectors that may begin beside each multiply-add, with it."""
    busy_ports: float = 0.75
    """Loads for each multiply-add above which the loads delay it; at 1 the load ports are full."""

    # memory ---------------------------------------------------------------------------------------
    entering_bytes: tuple[float, float, float] = (128.0, 64.0, 24.0)
    """Bytes a cycle that enter L1, L2 and L3 at peak, from the next larger cache or from memory."""
    most_bytes: tuple[float, float, float] = (192.0, 64.0, 32.0)
    """Bytes a cycle that no core exceeds, taken from L1, L2 and L3; limits are made of these."""
    l2_bytes: float = 20
    """Bytes a cycle that L2 gives on and on beside multiply-adds; bursts have 32."""
    l2_scattered_bytes: float = 9
    """The same of lines that lie apart, which nothing fetches ahead into L1."""
    l3_bytes: float = 10
    """Bytes a cycle that L3 gives one thread."""
    row_bytes: float = 32.0
    """Bytes a cycle that kernels of rows read and store, in the mean of all caches."""
    small_kernel_bytes: float = 16.0
    """Bytes a cycle that one thread reads of the operands of a kernel that fits into its caches."""
    cache_share: float = 0.7
    """Share of a cache that a nest can count on."""

    # loops and checks -----------------------------------------------------------------------------
    loop_cycles: float = 0.25
    """An iteration of a loop, besides its body."""
    exit_cycles: float = 4.0
    """The end of a loop, in the mean of those that were foreseen and those that were not."""
    check_cycles: float = 0.5
    """A check whether an element lies inside of its tensor."""
    mask_share: float = 0.05
    """A masked vector in a multiply-add, as a share of that multiply-add."""

    # elements that lie apart ----------------------------------------------------------------------
    most_stride: int = 4
    """The largest stride in elements at which whole runs are loaded and lanes picked from them.
    Elements further apart are gathered."""
    strided_cycles: float = 0.75
    """Cycles to load a whole run and pick lanes from it, for each unit of the stride."""
    scatter_cycles: float = 24.0
    """Cycles to store one vector whose lanes go to places apart; a gather takes about as long."""
    copied_vector_cycles: float = 5.0
    """Cycles to pack a vector, or an element from scattered places, as features count it."""
    copied_element_cycles: float = 1.2
    """Cycles to pack an element from places apart in squares that are transposed in registers."""
    far_copy: float = 2
    """How many times as long that takes from places that share a set of L1."""

    # threads --------------------------------------------------------------------------------------
    task_cycles: float = 20.0
    """Cycles to hand out a task."""
    wake_cycles: float = 3000.0
    """Until other threads have begun and said that they are done."""
    looking_cycles: float = 200_000.0
    """How long workers look for work behind a kernel, some 50 us."""

    # kernels that are too small -------------------------------------------------------------------
    worthless_s: float = 3e-6
    """Seconds of a kernel below which it is not worth a call."""
    elementwise_bytes_per_s: float = 3e10
    """Bytes a second that elementwise kernels move at least."""
    elementwise_operations_per_s: float = 1e10
    """Elementwise operations a second, most of them functions, that a core does at least."""


COMMON = MachineRates()
BY_ISA: Mapping[str, MachineRates] = MappingProxyType({})
"""By LLVM's name of a core: those whose rates are known to differ from the common ones."""


def rates_of(isa: str) -> MachineRates:
    return BY_ISA.get(isa, COMMON)

"""Cycles that a loop takes at least, counted by what a core can do in one of them.

Each kind of work is divided by its number of places a cycle, and the longest counts; so does the
longest chain of sums, where each waits for the one before.  Nothing is known of caches: what the
count leaves to the measured time went into waiting for memory, or into other code.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.assembly import Instruction
from hlotune.schedules.targets.cpu import CpuTarget

SHUFFLES = ("vperm", "vshuf", "vunpck", "vinsert", "vextract", "vblend", "vpblend", "vpunpck",
            "vpack", "vpshuf", "valign", "vpalign", "vexpand", "vcompress", "vpmov", "vmovddup",
            "vmovshdup", "vmovsldup", "vmovlhps", "vmovhlps")  # fmt: skip
MOVES = ("vmovap", "vmovup", "vmovdq", "vmovss", "vmovsd", "vbroadcast", "vpbroadcast", "vmovd",
         "vmovq")  # fmt: skip
SCATTERED = ("vgather", "vpgather", "vscatter", "vpscatter")
"""Each lane is a load or a store of its own."""
STACK = "(%rsp"


@dataclass(frozen=True, slots=True)
class Core:
    """What a processor's core takes up in a cycle, with vectors of its full width."""

    multiply_adds: float
    other_arithmetic: float
    """Places that multiply-adds do not need."""
    shuffles: float
    loads: float
    stores: float
    instructions: float
    chain_cycles: int
    """The cycles from a multiply-add to one that adds to its result."""


CORES: Mapping[str, Core] = {
    "znver5": Core(2, 2, 2, 2, 1, 8, 4),
    "znver4": Core(1, 1, 1, 1, 0.5, 6, 4),
}
"""By LLVM's name, vectors of 512 bits; from AMD's optimization guides of these cores."""


@dataclass(frozen=True, slots=True)
class Count:
    """The instructions of one pass through a loop, by kind."""

    multiply_adds: int
    other_arithmetic: int
    shuffles: int
    loads: int
    stores: int
    spills: int
    """Vectors to and from the stack, also counted as loads and stores."""
    instructions: int
    chain: int
    """Most multiply-adds that wait for each other from pass to pass: those into one register."""


def core_of(target: CpuTarget) -> Core:
    """Raises ValueError for a processor that no count is known of."""
    if not has_core(target):
        raise ValueError(
            f"expected a processor among {', '.join(CORES)} with vectors of 64 bytes, got "
            f"{target.isa} with {target.vector_bytes}; add its core to benchmarks/ports.py"
        )
    return CORES[target.isa]


def has_core(target: CpuTarget) -> bool:
    return target.isa in CORES and target.vector_bytes == 64


def count(body: Sequence[Instruction]) -> Count:
    kinds = Counter(kind(i) for i in body)
    memory = [i for i in body if i.touches_memory]
    on_stack = [i for i in memory if i.is_vector and STACK in i.text]
    return Count(
        multiply_adds=kinds["multiply_add"],
        other_arithmetic=kinds["arithmetic"],
        shuffles=kinds["shuffle"],
        loads=sum(accesses(i) for i in memory if not i.stores),
        stores=sum(accesses(i) for i in memory if i.stores),
        spills=len(on_stack),
        instructions=len(body),
        chain=chain(body),
    )


def chain(body: Sequence[Instruction]) -> int:
    """A register that something else writes begins anew in each pass, so nothing waits for it."""
    into = Counter(i.operands[-1] for i in body if i.is_multiply_add)
    written = {i.operands[-1] for i in body if i.is_vector and not i.is_multiply_add}
    return max((n for register, n in into.items() if register not in written), default=0)


def accesses(instruction: Instruction) -> int:
    """Loads or stores of an instruction that touches memory."""
    if not instruction.name.startswith(SCATTERED):
        return 1
    data = instruction.operands[0 if instruction.stores else -1]
    bits = {"%xmm": 128, "%ymm": 256, "%zmm": 512}[data[:4]]
    return bits // (64 if instruction.name.endswith(("pd", "q")) else 32)


def kind(instruction: Instruction) -> str:
    """What a vector instruction does beside touching memory; `other` for what is none."""
    if instruction.is_multiply_add:
        return "multiply_add"
    if not instruction.is_vector:
        return "other"
    if instruction.name.startswith(SCATTERED):
        return "move"
    if instruction.name.startswith(SHUFFLES):
        return "shuffle"
    if instruction.name.startswith(MOVES):
        crosses = instruction.name.startswith(("vbroadcast", "vpbroadcast"))
        return "shuffle" if crosses and not instruction.touches_memory else "move"
    return "arithmetic"


def cycles(found: Count, core: Core) -> dict[str, float]:
    """At least so many by each kind of work; the largest is what the loop takes at least."""
    pairs = {
        "multiply-adds": (found.multiply_adds, core.multiply_adds),
        "other arithmetic": (found.other_arithmetic, core.other_arithmetic),
        "shuffles": (found.shuffles, core.shuffles),
        "loads": (found.loads, core.loads),
        "stores": (found.stores, core.stores),
        "instructions": (found.instructions, core.instructions),
    }
    needed = {name: amount / places for name, (amount, places) in pairs.items()}
    return {**needed, "chain of sums": float(found.chain * core.chain_cycles)}

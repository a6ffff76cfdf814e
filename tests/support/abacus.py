"""A toy second kind of device: the interpreter of computes, with a clock that is a formula.

It has everything that a kind of target has, and nothing of it is LLVM's: a target, a space, a
backend, and a worker that measures.  `enter` puts it into the tables; workers do so themselves.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlotune.codegen import backends
from hlotune.codegen.backend import Array, Signature, SiteCode
from hlotune.codegen.built import Built
from hlotune.codegen.llvm import compile as llvm
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.time_formula import simulated_s
from hlotune.measure.timing.jax_bench import JaxBench
from hlotune.measure.timing.timing import Subject
from hlotune.measure.trial import Clock
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir import compute as computes
from hlotune.schedules.ir import expr, monoids
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import executed_flops
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets import kinds
from hlotune.schedules.targets.target import Kind, Properties, Target
from tests.support.ffi_call import call_text, register
from tests.support.interpreter import interpret

MODEL = TARGETS["x86-64"]
"""The machine whose nests the toy takes."""
DEFAULT_S = 1.0
"""What the default takes by the toy's clock: everything beats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbacusTarget(Target):
    """A device that counts beads."""

    kind: Kind = "abacus"
    beads: int

    @property
    def platform(self) -> str:
        return "cpu"

    @property
    def peaks(self) -> Properties:
        return Properties(flops_per_s={"f32": 1e15}, read_bytes_per_s=1e15, clock_hz=1.0)

    def as_found(self, device: str) -> Target:
        return self


ABACUS = AbacusTarget(name="abacus:wood", beads=100)


@dataclass(frozen=True, eq=False)
class Counted:
    """A kernel that the interpreter can run."""

    built: Built
    compute: Compute


class _Interpreter:
    def emit(self, compute: Compute, schedule: Schedule, target: Target) -> Built:
        nest = replay(compute, schedule, MODEL)
        text = re.sub(
            r"Monoid\(name='sum'.*?finish=None, is_ordered=False\)", "SUM", repr(nest.compute)
        )
        seconds = f"{simulated_s(nest):.9g}"
        return Built(
            object=f"{seconds}\n{text}".encode(),
            scratch_bytes=0,
            packed=(),
            flops=executed_flops(nest),
            threads=1,
            algorithm=schedule.algorithm,
            backend="interpreter",
        )

    def load(self, built: Built) -> Counted:
        _, _, text = built.object.decode().partition("\n")
        names = {**vars(computes), **vars(expr), **vars(monoids)}
        return Counted(built, eval(text, names))

    def replacement(
        self, loaded: Counted, signature: Signature, constants: Mapping[int, Array]
    ) -> SiteCode:
        name = f"abacus_{loaded.built.key}"
        takes, gives = signature.arguments, signature.results
        register(name, lambda a: interpret(loaded.compute, a), takes, gives)
        return SiteCode(call_text(name, takes, gives))

    def call(
        self, loaded: Counted, signature: Signature, arguments: Sequence[Array]
    ) -> list[Array]:
        return interpret(loaded.compute, arguments)


BACKEND = _Interpreter()


class AbacusBench(JaxBench):
    """Runs what it measures, and says what the formula says."""

    def candidate(
        self,
        built: Built,
        place: str = "candidate",
        loaded: Any = None,
        clock: Clock = "kernel",
    ) -> Subject:
        measured = super().candidate(built, place, loaded)
        assert measured.call() > 0
        seconds = float(built.object.decode().partition("\n")[0])
        return Subject(lambda: seconds, lambda: 0.0)

    def default(
        self, clock: Clock = "kernel", *, is_long: bool = False, baked: bool = True
    ) -> tuple[Subject, ...]:
        (measured,) = super().default()
        assert measured.call() > 0
        return (Subject(lambda: DEFAULT_S, lambda: 0.0),)


def abacus_space(compute: Compute, target: Target, numerics: Numerics = "standard") -> Space:
    return space_of(compute, MODEL, numerics)


Put = Callable[[dict[str, Any], str, Any], object]


def enter(put: Put = dict.__setitem__) -> None:
    """Puts the toy into the tables of this process: all that adding a kind of device takes."""
    put(kinds.KINDS, "abacus", AbacusTarget)
    put(backends.BACKENDS, "interpreter", "tests.support.abacus")
    put(backends.OF_KIND, "abacus", "interpreter")


def main(role: str) -> None:
    """Serves as a worker of that role, which has the toy and no LLVM."""
    from hlotune.measure.workers import device_handler, worker

    def refused(*_: object) -> None:
        raise RuntimeError("expected no line of LLVM, got some")

    enter()
    module: Any = device_handler
    module.JaxBench = AbacusBench
    compiler: Any = llvm
    compiler._object = refused
    worker.main(role)


def worker_command(role: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.support.abacus", role)


if __name__ == "__main__":
    from tests.support import abacus

    abacus.main(sys.argv[1])

"""Made-up kernels, targets and trials, and databases filled with them."""

from dataclasses import dataclass, replace
from pathlib import Path

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import speedup
from hlotune.measure.trial import (
    CacheMode,
    Candidate,
    Clock,
    Failure,
    FailureKind,
    Measurement,
    Trial,
)
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Split, Unroll
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties, Toolchain
from hlotune.tuning_logs.database import Conditions, Database, conditions
from hlotune.tuning_logs.finals import Final, Paired, Summary


def kernel(extent: int = 8, op: str = "add") -> Kernel:
    """Kernels of one `op` are a family."""
    kind = f"tensor<{extent}xf32>"
    return Kernel(
        f"func.func @kernel(%0: {kind}) -> {kind} {{\n"
        f"  %1 = stablehlo.{op} %0, %0 : {kind}\n  return %1 : {kind}\n}}"
    )


KERNEL = kernel()

TARGET = CpuTarget(
    kind="cpu",
    name="Test CPU",
    triple="x86_64-unknown-linux-gnu",
    isa="znver4",
    features=("avx", "avx2", "fma"),
    cores=2,
    threads=2,
    l1_bytes=32768,
    l2_bytes=1048576,
    l3_bytes=33554432,
)
OTHER_TARGET = replace(TARGET, name="Other CPU", isa="znver5")
TOOLCHAIN = Toolchain(jaxlib="0.10.2", llvm="20.1", codegen="1", xla_flags="")
OTHER_TOOLCHAIN = replace(TOOLCHAIN, jaxlib="0.9.0")
PROPERTIES = Properties(flops_per_s={"f32": 2e11}, read_bytes_per_s=3e10, clock_hz=3.7e9)
HERE: Conditions = conditions(TARGET, TOOLCHAIN)


@dataclass(frozen=True)
class NamedProgram:
    key: str
    name: str
    source: str


@dataclass(frozen=True)
class NamedSite:
    name: str
    kernel: Kernel
    label: str
    weight: float


PROGRAM = NamedProgram(key="ab" * 16, name="mlp", source="examples/mlp.py:model")


def schedule(number: int) -> Schedule:
    return Schedule("direct", (Split("out", "i0", (2, number)), Unroll("out", "i0.1")))


def measured(
    time_s: float,
    number: int = 1,
    *,
    of: Kernel = KERNEL,
    numerics: Numerics = "standard",
    cache: CacheMode = "model",
    clock: Clock = "kernel",
) -> Trial:
    """Three samples, with their median at `time_s`."""
    samples = (time_s * 1.25, time_s, time_s * 0.75)
    outcome = Measurement(
        samples_s=samples, numerics=numerics, cache=cache, clock=clock, error=0.25, build_s=0.01
    )
    return Trial(Candidate(of, schedule(number)), outcome)


def failed(
    kind: FailureKind = "crash",
    message: str = "signal 11",
    number: int = 99,
    *,
    of: Kernel = KERNEL,
) -> Trial:
    return Trial(Candidate(of, schedule(number)), Failure(kind, message))


def default_trial(time_s: float, of: Kernel = KERNEL) -> Trial:
    return Trial(Candidate(of, DEFAULT), Measurement(samples_s=(time_s,), numerics="strict"))


def paired(times: float) -> Paired:
    """So many times faster, with an interval that reaches 2 % to either side."""
    spread = (*(0.98,) * 12, *(1.0,) * 7, *(1.02,) * 12)
    default_s, tuned_s = tuple(times * 1e-3 * x for x in spread), (1e-3,) * len(spread)
    return Paired.of(default_s, tuned_s, speedup(default_s, tuned_s))


def final(times: float = 2.0, number: int = 1, *, numerics: Numerics = "standard") -> Final:
    """Tuned where the interval lies above 1, else the default is kept."""
    found = paired(times)
    return Final(
        schedule=schedule(number),
        numerics=numerics,
        paired=found,
        outcome="tuned" if found.low > 1 else "kept default",
        margin=found.low - 1,
        flops=40_000_000,
        dtype="f32",
    )


def start(
    database: Database,
    *,
    target: CpuTarget = TARGET,
    toolchain: Toolchain = TOOLCHAIN,
    cache: CacheMode = "model",
    numerics: Numerics = "standard",
    program: NamedProgram | None = None,
) -> str:
    """A run, of kernels alone where no program is given."""
    return database.start_run(program, target, toolchain, cache=cache, numerics=numerics)


def fill(database: Database) -> str:
    """One finished run of a program: a kernel won, a kernel kept at XLA, a kernel not compared."""
    won, kept, unfinished = KERNEL, kernel(op="multiply"), kernel(op="divide")
    sites = [
        NamedSite("s0", won, "add [8]", 1.0),
        NamedSite("s1", won, "add [8]", 1.0),
        NamedSite("s2", kept, "multiply [8]", 24.0),
        NamedSite("s3", unfinished, "divide [8]", 1.0),
    ]
    run = database.start_run(
        PROGRAM,
        TARGET,
        TOOLCHAIN,
        sites=sites,
        properties=PROPERTIES,
        options={"trials": 4},
        seed=7,
    )
    first = [default_trial(2e-3), measured(1e-3), failed()]
    scores = (None, 0.75, 0.5)
    database.add(run, won, first, batch=0, state=b"after batch 0", predicted=scores)
    database.add(run, won, [measured(1.5e-3, 2)], batch=1, state=b"after batch 1")
    slower = [default_trial(1e-3, kept), measured(1.02e-3, of=kept)]
    database.add(run, kept, slower, batch=0)
    wrong = failed("wrong_result", "[bold]3 of 8 elements[/bold]", of=unfinished)
    database.add(run, unfinished, [wrong], batch=0)
    database.record_final(run, won, final(2.0))
    database.record_final(run, kept, final(0.98))
    database.finish_run(
        run, Summary(wall_s=12.5, whole=paired(1.5), error=1.2e-6, default_error=0.9e-6)
    )
    return run


def filled(path: Path) -> Database:
    database = Database(path)
    fill(database)
    return database


def contents(database: Database, *tables: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows of the tables, sorted: equal for equal databases."""
    return {
        table: sorted(
            (tuple(row.values()) for row in database.query(f"select * from {table}")), key=repr
        )
        for table in tables
    }

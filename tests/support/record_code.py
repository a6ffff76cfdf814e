"""What the code generation of a version makes of fixed schedules: `python -m
tests.support.record_code`.

A record is a kernel of `computes.py` for AVX-512, or a function of each element for AVX2, which has
other code for it; a schedule; and the hash of the text that is emitted for it.  Beside them stand
the options that the text is compiled with.
`test_version.py` compares; the schedules are drawn once and kept, so that a change of the space
leaves them alone.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from hlotune.codegen.llvm.compile import OPTIONS
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.version import CODEGEN_VERSION
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import ANY_WAY, SMALL, named
from tests.support.maps import applied, of_each

RECORD = Path(__file__).parents[1] / "fixtures" / "emitted.json"
TARGET, WITH_AVX2 = TARGETS["znver4"], TARGETS["x86-64-v3"]
SCHEDULES = 12
FUNCTIONS = ("exponential", "logistic", "erfc")
"""Functions of each of 1,003 elements, as code for AVX2 has them."""


def emitted_hash(name: str, schedule: Schedule) -> str:
    text = emit(replay(*_kernel(name, schedule))).text
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kernel(name: str, schedule: Schedule) -> tuple[Compute, Schedule, CpuTarget]:
    if name in FUNCTIONS:
        return of_function(name), schedule, WITH_AVX2
    return named(name).compute, schedule, TARGET


def of_function(name: str) -> Compute:
    return of_each(applied(name), 1003)


def options() -> dict[str, list[str]]:
    """What LLVM compiles the text with, by architecture."""
    return {
        architecture: [f"-{name}={value}" for name, value, _ in chosen]
        for architecture, chosen in OPTIONS.items()
    }


def schedules() -> dict[str, list[str]]:
    """The kept schedules of each kernel, or new ones where there are none."""
    kept = json.loads(RECORD.read_text())["hashes"] if RECORD.exists() else {}
    return {name: list(kept.get(name) or drawn(name)) for name in (*SMALL, *ANY_WAY, *FUNCTIONS)}


def drawn(name: str) -> list[str]:
    """First candidates of a kernel and random ones, by all algorithms where it is of those; of a
    function the first candidate alone."""
    if name in FUNCTIONS:
        rows = rows_space_of(of_function(name), WITH_AVX2)
        return [rows.schedule(rows.heuristic()).to_json()]
    compute = named(name).compute
    space = space_of(compute, TARGET, "fast") if name in ANY_WAY else named(name).space(TARGET)
    configs = *space.firsts(), *space.sample(SCHEDULES, np.random.default_rng(0))
    return [space.schedule(c).to_json() for c in configs]


def main() -> None:
    hashes = {
        name: {text: emitted_hash(name, Schedule.from_json(text)) for text in texts}
        for name, texts in schedules().items()
    }
    record = {"version": CODEGEN_VERSION, "options": options(), "hashes": hashes}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

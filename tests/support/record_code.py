"""What the code generation of a version makes of fixed schedules: `python -m
tests.support.record_code`.

A record is a kernel of `computes.py`, a schedule, and the hash of the text that is emitted for it;
beside them stand the options that the text is compiled with.
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
from hlotune.schedules.steps.schedule import Schedule
from tests.support.computes import ANY_WAY, SMALL, named

RECORD = Path(__file__).parents[1] / "fixtures" / "emitted.json"
TARGET = TARGETS["znver4"]
SCHEDULES = 12


def emitted_hash(name: str, schedule: Schedule) -> str:
    text = emit(replay(named(name).compute, schedule, TARGET)).text
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def options() -> dict[str, list[str]]:
    """What LLVM compiles the text with, by architecture."""
    return {
        architecture: [f"-{name}={value}" for name, value, _ in chosen]
        for architecture, chosen in OPTIONS.items()
    }


def schedules() -> dict[str, list[str]]:
    """The kept schedules of each kernel, or new ones where there are none."""
    kept = json.loads(RECORD.read_text())["hashes"] if RECORD.exists() else {}
    return {name: list(kept.get(name) or drawn(name)) for name in (*SMALL, *ANY_WAY)}


def drawn(name: str) -> list[str]:
    """First candidates of a kernel and random ones, by all algorithms where it is of those."""
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

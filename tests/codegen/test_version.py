"""Times are kept under the version of the code generation, so other code needs another version."""

import json

from hlotune.codegen.version import CODEGEN_VERSION
from hlotune.schedules.steps.schedule import Schedule
from tests.support.record_code import RECORD, emitted_hash, options

AGAIN = (
    "raise CODEGEN_VERSION in codegen/version.py, then run `python -m tests.support.record_code`"
)


def test_the_version_says_when_other_code_is_emitted() -> None:
    record = json.loads(RECORD.read_text())
    assert record["version"] == CODEGEN_VERSION, f"the record is of another version: {AGAIN}"
    changed = [
        (name, text)
        for name, hashes in record["hashes"].items()
        for text, kept in hashes.items()
        if emitted_hash(name, Schedule.from_json(text)) != kept
    ]
    assert not changed, f"{len(changed)} kernels have other code, the first {changed[0]}: {AGAIN}"


def test_the_version_says_when_the_code_is_compiled_with_other_options() -> None:
    record = json.loads(RECORD.read_text())
    assert record["options"] == options(), f"LLVM gets other options: {AGAIN}"

"""What limits a case against peers, and what is timed beside its kernel for its share of that."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import arena
from benchmarks.peers.arena import Arena, timed_before
from benchmarks.peers.contestants import Weights
from benchmarks.peers.passes import Pass, keep, kept, to_json
from benchmarks.peers.records import OwnTime, Record, own_time
from benchmarks.peers.roofs import Peaks
from benchmarks.peers.rounds import Effort
from benchmarks.peers.table import table
from hlotune.codegen.built import Built
from hlotune.measure.timing.comparison import Beside
from hlotune.measure.timing.timing import always_apart
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Properties
from tests.benchmarks.test_peers_table import TARGET, a_pass, rows
from tests.benchmarks.test_results_page import CONDITIONS
from tests.support.recorded import KERNEL, PROPERTIES

THIN = "gemm_1x4096x4096"
THIN_BYTES = 4 * (4096 * 4096 + 2 * 4096)
TUNED = Record(KERNEL, Schedule("direct"), "tuned")


def thin(arguments: OwnTime, constants: OwnTime | None = None) -> Pass:
    return replace(a_pass(THIN), own={"arguments": arguments, "constants": constants})


@pytest.mark.parametrize(("case", "moved"), [(THIN, THIN_BYTES), ("gemm_2048", 0), ("C6", 0)])
def test_reading_limits_what_no_cache_holds_and_computes_little(case: str, moved: int) -> None:
    assert Peaks({"f32": 2e11}, 4e10).limiting_bytes(case, TARGET) == moved


def test_a_share_of_a_read_is_of_the_one_beside_the_kernel_where_there_is_one() -> None:
    """The fastest of all passes is 4e10 bytes a second."""
    found = rows(thin(OwnTime(2e-3, None, 3.5e10), OwnTime(2e-3, None)))
    assert [r.roof for r in found] == ["read", "fastest read"]
    assert found[0].share == pytest.approx(THIN_BYTES / 3.5e10 / 2e-3)
    assert found[1].share == pytest.approx(THIN_BYTES / 4e10 / 2e-3)
    notes = table(found, {}).notes
    assert "`read`: of as many bytes, in turns with the kernel" in notes
    assert "`fastest read`: of all passes, for none was timed beside that kernel" in notes


def test_where_some_passes_have_a_read_beside_the_kernel_these_alone_count() -> None:
    row, *_ = rows(thin(OwnTime(9e-3, None)), thin(OwnTime(2e-3, None, 3.5e10)))
    assert row.roof == "read" and row.share == pytest.approx(THIN_BYTES / 3.5e10 / 2e-3)


def test_a_table_without_a_share_of_a_read_tells_of_none() -> None:
    assert not [note for note in table(rows(a_pass("C6")), {}).notes if "`read`" in note]
    _, unknown = rows(thin(OwnTime(2e-3, None, 3.5e10)))
    assert unknown.share is None
    assert not [note for note in table([unknown], {}).notes if "`read`" in note]


def test_a_pass_of_before_has_no_read_and_is_read_all_the_same(tmp_path: Path) -> None:
    old = to_json(a_pass())
    for own in old["own"].values():
        del own["read_bytes_per_s"]
    (tmp_path / "C6.jsonl").write_text(json.dumps(old) + "\n")
    assert kept("C6", tmp_path) == [a_pass()]


def test_kernels_that_were_timed_without_the_read_they_need_are_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(thin(OwnTime(2e-3, None)))
    assert timed_before(THIN, "k") and not timed_before(THIN, "k", with_read=True)
    keep(thin(OwnTime(2e-3, None, 3.5e10)))
    assert timed_before(THIN, "k", with_read=True)["arguments"] == OwnTime(2e-3, None, 3.5e10)


class FakeBuilder:
    def build(self, candidates: list[Candidate]) -> list[Built | Failure]:
        return [Built(b"", 0, (), 0, 2) for _ in candidates]


class FakeRunner:
    """A kernel takes 1 ms beside multiply-adds, and 2 ms beside a read of so many bytes in 1 ms."""

    def properties(self) -> Properties:
        return PROPERTIES

    def measure(self, _: object, objects: list[tuple[Candidate, Built]], cache: str) -> list[Trial]:
        return [Trial(c, Measurement(samples_s=(3e-3,))) for c, _ in objects]

    def beside_peak(self, *_: object, cache: str) -> Beside:
        return Beside((1e-3,), (2e11,))

    def beside_read(self, _: object, built: object, size: int, cache: str) -> Beside:
        return Beside((2e-3,), (size * 1e3,))


def test_a_read_is_timed_beside_a_kernel_that_it_limits_and_multiply_adds_beside_others() -> None:
    builder: Any = FakeBuilder()
    runner: Any = FakeRunner()
    assert own_time(TUNED, "f32", builder, runner) == OwnTime(1e-3, 2e11)
    read = own_time(TUNED, "f32", builder, runner, read_bytes=4_000_000)
    assert read == OwnTime(2e-3, None, 4e9)


def test_a_pass_says_how_many_bytes_limit_a_case_until_a_read_of_them_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[int] = []

    def timed(*_: object, read_bytes: int) -> OwnTime:
        asked.append(read_bytes)
        return OwnTime(1e-3, None, 3e10 if read_bytes else None)

    def record(case: str, weights: Weights, *_: object) -> Record:
        return Record(KERNEL, DEFAULT, "tuned")

    monkeypatch.setattr(arena, "measured", lambda *_: {})
    monkeypatch.setattr(arena, "record", record)
    monkeypatch.setattr(arena, "own_time", timed)
    under = {**CONDITIONS, "read_bytes_per_s": 4e10, "versions": {}}
    nobody: Any = None
    taking_part = Arena(
        TARGET, (), nobody, nobody, under, Effort(), tmp_path / "a.db", "warm", always_apart
    )
    for case in (THIN, "GMM2", THIN, "GMM2"):
        taking_part.measure(case)
    assert asked == [THIN_BYTES, THIN_BYTES, 0, 0]

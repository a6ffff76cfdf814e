"""Peaks are measured once a day, whatever becomes of the file that keeps them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.targets.target import Properties
from hlotune.tuning_logs import kept_peaks
from hlotune.tuning_logs.kept_peaks import KEPT_S, keep, kept, kept_or, peaks_file
from tests.support.recorded import PROPERTIES, TARGET, TOOLCHAIN

FASTER = replace(PROPERTIES, clock_hz=2 * PROPERTIES.clock_hz)


class Measuring:
    def __init__(self, peaks: Properties = PROPERTIES, *, is_worth_it: bool = True) -> None:
        self.peaks, self.is_worth_it, self.times = peaks, is_worth_it, 0

    def __call__(self) -> tuple[Properties, bool]:
        self.times += 1
        return self.peaks, self.is_worth_it


def test_peaks_are_measured_once_a_day(tmp_path: Path) -> None:
    path, measure = tmp_path / "new" / "peaks.json", Measuring()
    for now_s in (0.0, 1.0, KEPT_S - 1):
        assert kept_or(measure, path, TOOLCHAIN, now_s) == PROPERTIES
    assert measure.times == 1
    again = Measuring(FASTER)
    assert kept_or(again, path, TOOLCHAIN, KEPT_S) == FASTER
    assert kept(path, TOOLCHAIN, KEPT_S + 1) == FASTER


def test_peaks_of_another_toolchain_or_of_the_future_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    keep(path, PROPERTIES, TOOLCHAIN, 100.0)
    assert kept(path, TOOLCHAIN, 100.0) == PROPERTIES
    assert kept(path, TOOLCHAIN, 99.0) is None
    assert kept(path, replace(TOOLCHAIN, llvm="0"), 100.0) is None


def test_what_was_measured_in_a_bad_minute_is_not_kept(tmp_path: Path) -> None:
    measure = Measuring(is_worth_it=False)
    for _ in range(2):
        assert kept_or(measure, tmp_path / "peaks.json", TOOLCHAIN) == PROPERTIES
    assert measure.times == 2
    assert list(tmp_path.iterdir()) == []


DAMAGE = {
    "empty": "",
    "no JSON": "peaks",
    "a list": "[]",
    "nested deeply": "[" * 60_000,
    "cut": '{"measured": 1.0, "toolc',
    "no properties": '{"measured": 1.0, "toolchain": "KEY"}',
    "no number": '{"measured": "now", "toolchain": "KEY", "properties": {}}',
    "another field": '{"measured": 1.0, "toolchain": "KEY", "properties": {"a": 1}}',
    "a peak of zero": ("flops_per_s", {"f32": 0}),
    "a peak that is no number": ("flops_per_s", {"f32": "fast"}),
    "an infinite peak": ("clock_hz", float("inf")),
    "a peak that is none": ("read_bytes_per_s", float("nan")),
    "no peak of f32": ("flops_per_s", {}),
    "peaks in a list": ("flops_per_s", [1.0]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_measured_over(damage: str | tuple[str, object], tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    keep(path, PROPERTIES, TOOLCHAIN, 1.0)
    if isinstance(damage, tuple):
        found = json.loads(path.read_text())
        found["properties"] |= dict([damage])
        path.write_text(json.dumps(found))
    else:
        path.write_text(damage.replace("KEY", TOOLCHAIN.key))
    assert kept(path, TOOLCHAIN, 1.0) is None
    assert kept_or(Measuring(FASTER), path, TOOLCHAIN, 1.0) == FASTER
    assert kept(path, TOOLCHAIN, 1.0) == FASTER


def test_bytes_that_are_no_text_are_measured_over(tmp_path: Path) -> None:
    (tmp_path / "peaks.json").write_bytes(os.urandom(100) + b"\xff")
    assert kept(tmp_path / "peaks.json", TOOLCHAIN) is None


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert kept_or(Measuring(), tmp_path / "file" / "peaks.json", TOOLCHAIN) == PROPERTIES
    assert kept_or(Measuring(), tmp_path, TOOLCHAIN) == PROPERTIES


def test_the_file_lies_beside_the_default_database_and_nowhere_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_peaks, "cache_directory", lambda: tmp_path)
    assert peaks_file(TARGET) == tmp_path / "hlotune" / f"peaks.{TARGET.fingerprint}.json"

    def homeless() -> Path:
        raise DatabaseError("no home")

    monkeypatch.setattr(kept_peaks, "cache_directory", homeless)
    assert peaks_file(TARGET) is None
    assert kept_or(Measuring(), None, TOOLCHAIN) == PROPERTIES

"""Trials as T4: what its schema 1.0.0 requires of results."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from hlotune.measure.trial import FailureKind
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.t4 import INVALIDITY, results
from tests.support.mlp_records import said
from tests.support.recorded import fill

REQUIRED = {"configuration", "times", "invalidity", "correctness"}
WORDS = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Database(tmp_path / "tuning.db") as database:
        fill(database)
    return tmp_path / "tuning.db"


def test_a_file_keeps_to_the_schema(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "t4.json"
    text = said(capsys, "db", "export", str(file), "--format", "t4", "--db", str(path))
    assert "7 records in" in text
    data = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", data["schema_version"])
    assert len(data["results"]) == 7
    for result in data["results"]:
        assert result.keys() >= REQUIRED and result["invalidity"] in WORDS
        assert isinstance(result["correctness"], int) and isinstance(result["times"], dict)
        assert all({"name", "value", "unit"} == m.keys() for m in result["measurements"])
        assert (result["invalidity"] == "correct") == bool(result["measurements"])


def test_times_are_milliseconds_and_every_kind_of_failure_has_a_word(path: Path) -> None:
    with Database(path, read_only=True) as database:
        found = list(results(database))
    first = found[1]
    assert first["measurements"] == [{"name": "time", "value": 1.0, "unit": "ms"}]
    assert first["times"]["runtimes"] == pytest.approx([1.25, 1.0, 0.75])
    assert first["configuration"]["algorithm"] == "direct"
    assert json.loads(first["configuration"]["steps"][0])[0] == "Split"
    assert {r["invalidity"] for r in found} == {"correct", "runtime", "correctness"}
    assert INVALIDITY.keys() == set(get_args(FailureKind))
    assert set(INVALIDITY.values()) | {"correct"} == WORDS


def test_a_row_that_does_not_parse_is_left_out_and_counted(path: Path) -> None:
    with Database(path) as database:
        with database.writing() as sql:
            sql.execute("update trials set schedule = '?' where number = 0")
        assert len(list(results(database))) == 6
        assert database.unreadable == 1

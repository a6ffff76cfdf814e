"""Where nobody names a database, `tune`, `apply` and `jit` take the same one."""

import re
from pathlib import Path

import pytest

import hlotune
from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import DatabaseError
from hlotune.search import tune as tuning
from hlotune.tuning_logs.database import Database
from tests.support.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded

X = normal(8, 16)


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, X)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """By the variable."""
    monkeypatch.setenv("HLOTUNE_DB", str(tmp_path / "named.db"))
    return tmp_path / "named.db"


def test_what_was_tuned_without_a_name_is_found_without_one(
    program: Program, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(program: Program, records: Database, *_: object) -> None:
        recorded(records.path, {first_sites(program)["dot0"]: final(DIRECT)})

    monkeypatch.setattr(tuning, "searched", searched)
    hlotune.tune(program, trials=1)
    assert named.exists()
    assert [s.name for s in hlotune.apply(program).sites] == ["dot0"]
    assert hlotune.jit(mlp).explain(PARAMETERS, X)[0].status == "tuned"


def test_applying_a_database_that_is_not_there_says_where_it_was_looked_for(
    program: Program, named: Path
) -> None:
    with pytest.raises(DatabaseError, match=re.escape(str(named))):
        hlotune.apply(program)
    assert not named.exists()

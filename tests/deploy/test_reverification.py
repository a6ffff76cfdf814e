"""A tuned program runs no machine code that was not verified."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hlotune.codegen.built import Built
from hlotune.deploy import apply as applying
from hlotune.deploy import reverification
from hlotune.deploy.apply import TunedFunction, apply
from hlotune.deploy.replacement import built_here
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Candidate
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.tuning_logs.database import Database
from tests.support.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded

OTHER = "0" * 32
"""No code has this hash."""


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


def applied(program: Program, folder: Path, *, code: str | None) -> TunedFunction:
    """With a record of the first dot that names this code; None leaves it to today's."""
    records = {first_sites(program)["dot0"]: replace(final(DIRECT), code=code)}
    return apply(program, database=recorded(folder / "a.db", records))


def test_code_that_the_record_names_runs_without_being_verified_again(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessRunner, "verify", None)
    tuned = applied(program, tmp_path, code=None)
    assert [s.name for s in tuned.sites] == ["dot0"]
    assert tuned.explain()[0].reason == "tuned: 2.00x (2.00 to 2.00)"


def test_code_that_the_record_does_not_name_is_verified_anew(
    program: Program, tmp_path: Path
) -> None:
    tuned = applied(program, tmp_path, code=OTHER)
    assert [s.name for s in tuned.sites] == ["dot0"]
    assert tuned.explain()[0].reason.endswith(reverification.ANEW)
    x = normal(8, 16)
    np.testing.assert_allclose(
        tuned(PARAMETERS, x)["logits"], mlp(PARAMETERS, x)["logits"], rtol=1e-5, atol=1e-5
    )


def test_a_record_that_names_no_code_is_verified_anew(program: Program, tmp_path: Path) -> None:
    site = first_sites(program)["dot0"]
    path = recorded(tmp_path / "a.db", {site: final(DIRECT)})
    with Database(path) as database, database.writing() as sql:
        sql.execute("update finals set code = null")
    assert apply(program, database=path).explain()[0].reason.endswith(reverification.ANEW)


def test_code_that_has_become_wrong_is_not_used(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = built_here(first_sites(program)["dot1"].kernel, DIRECT, host_target())
    records = {first_sites(program)["dot0"]: replace(final(DIRECT), code=OTHER)}
    path = recorded(tmp_path / "a.db", records)
    monkeypatch.setattr(applying, "built_here", lambda *_: wrong)
    tuned = apply(program, database=path)
    assert tuned.sites == ()
    said = tuned.explain()[0]
    assert said.status == "failed"
    assert "expected the machine code that was recorded, or as good" in said.reason
    assert "tune this kernel again" in said.reason


def test_a_builders_process_makes_the_code_that_applying_makes(program: Program) -> None:
    kernel = first_sites(program)["dot0"].kernel
    with ProcessBuilder(host_target(), processes=1) as builder:
        (built,) = builder.build([Candidate(kernel, DIRECT)])
    assert isinstance(built, Built)
    assert built.key == built_here(kernel, DIRECT, host_target()).key

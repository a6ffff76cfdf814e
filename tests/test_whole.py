"""What a run says of the whole program is of the program that its records make."""

from pathlib import Path

import pytest

from hlotune.hlo.program import Program, load
from hlotune.hlo.sites import sites
from hlotune.measure.targets import host_target, toolchain
from hlotune.search.whole import compare_whole
from hlotune.tuning_logs.database import Database
from tests.applied import DIRECT, PARAMETERS, final, mlp, normal


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


def test_the_whole_program_has_the_winners_of_the_cache_mode_that_was_searched(
    program: Program, tmp_path: Path
) -> None:
    (site, *_) = sites(program)
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, final(DIRECT))
        compared = compare_whole(program, database, "standard", host_target(), "warm", 0.2)
        assert compared is not None
        assert compared.error is not None and compared.error < 1e-5
        assert compare_whole(program, database, "standard", host_target(), "model", 0.2) is None

"""A second kind of device goes the whole road: build, verify, time, record, choose, apply.

The device is a toy, the interpreter of computes; no line of LLVM is built for it.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.codegen.backends import backend_named
from hlotune.codegen.built import Built
from hlotune.codegen.llvm import compile as llvm
from hlotune.costmodel.trees import Trees
from hlotune.deploy.apply import apply
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import Candidate, Measurement
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.search import tasks as search_tasks
from hlotune.search.budget.limits import Limits
from hlotune.search.experience import Experience
from hlotune.search.result import TuneResult
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.session import Session
from hlotune.tuning_logs.database import Database, conditions
from tests.support import abacus
from tests.support.abacus import ABACUS, abacus_space, worker_command
from tests.support.sessions import FakeProgram

X = np.arange(24, dtype=np.float32).reshape(4, 6)
W = np.arange(48, dtype=np.float32).reshape(6, 8) % 5 - 2
TRIALS = 6


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.maximum(x @ w, 1.0)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    abacus.enter(monkeypatch.setitem)
    monkeypatch.setitem(search_tasks.SPACES, "abacus", abacus_space)


@pytest.fixture
def program() -> Program:
    return load(product, X, W)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "abacus.db") as opened:
        yield opened


def tuned(program: Program, database: Database) -> TuneResult:
    found, skipped = search_tasks.tasks(sites(program), ABACUS)
    assert (len(found), skipped) == (1, ())
    with (
        ProcessBuilder(ABACUS, processes=1, command=worker_command("build")) as builder,
        ProcessRunner(ABACUS, command=worker_command("device")) as runner,
    ):
        run = database.start_run(
            program,
            ABACUS,
            toolchain(),
            sites=[s for s in sites(program) if s.kernel == found[0].kernel],
            properties=runner.properties(),
            options={"trials": TRIALS},
            seed=0,
        )
        session = Session(
            database=database,
            run=run,
            under=conditions(ABACUS, toolchain()),
            target=ABACUS,
            peaks=runner.properties,
            builder=builder,
            runner=runner,
            experience=Experience(Trees()),
            make=SEARCHERS["random"],
            seed=0,
            numerics="standard",
            progress=lambda event: None,
            limits=Limits(trials=TRIALS),
            whole=FakeProgram(lambda: None),
            start_s=0.0,
        )
        return session.finished(session.tuned("product", found, skipped))


def test_a_toy_device_is_tuned_for_and_its_kernels_are_applied(
    program: Program, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        pytest.fail("LLVM was asked for code")

    monkeypatch.setattr(llvm, "_object", refused)
    result = tuned(program, database)
    assert result.trials == TRIALS
    (kernel,) = result.won
    trials = database.trials(kernel.key, **conditions(ABACUS, toolchain()))
    assert sum(isinstance(t.outcome, Measurement) for t in trials) == TRIALS + 1
    applied = apply(program, database=database, target=ABACUS)
    assert [e.status for e in applied.explain() if e.site in applied.sites] == ["tuned"]
    assert "abacus_" in applied.lower(X, W).as_text()
    np.testing.assert_array_equal(applied(X, W), np.maximum(X @ W, 1.0))


def test_a_built_kernel_names_the_backend_that_loads_it(program: Program) -> None:
    with ProcessBuilder(ABACUS, processes=1, command=worker_command("build")) as builder:
        (task,), _ = search_tasks.tasks(sites(program), ABACUS)
        schedule = task.space.schedule(task.space.heuristic())
        (built,) = builder.build([Candidate(task.kernel, schedule)])
    assert isinstance(built, Built)
    assert built.backend == "interpreter"
    loaded = backend_named(built.backend).load(built)
    assert loaded.built == built

"""XLA's own options: their table, their space, and a search for a whole program."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.trial import Failure
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.spaces.xla_options.space import OptionsSpace, options_of, schedule_of
from hlotune.schedules.spaces.xla_options.table import OPTIONS, Option, Value
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.kinds import CPU, GPU, TPU
from hlotune.search.budget.limits import Limits
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.xla_options import Ask, Both, Found, search_options, whole_kernel
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.listing import find_run
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.sessions import TARGET, TOOLS

FASTER = "xla_cpu_multi_thread_eigen"


@pytest.mark.parametrize("kind", [CPU, GPU])
def test_xla_takes_each_value_of_each_option(kind: str) -> None:
    """Options of GPUs are known to a compiler for CPUs, which ignores them."""
    lowered = jax.jit(lambda x: x + 1).lower(jnp.ones(2))
    for option in OPTIONS[kind]:
        for value in option.values:
            lowered.compile(compiler_options=cast(Any, {option.name: value}))
    with pytest.raises(Exception, match="No such compile option"):
        lowered.compile(compiler_options={"xla_no_such_option": True})


@pytest.mark.parametrize("kind", [CPU, GPU, TPU])
def test_configs_are_schedules_and_back(kind: str) -> None:
    space, rng = OptionsSpace(kind), np.random.default_rng(0)
    for config in np.concatenate([space.sample(50, rng), space.firsts()]):
        assert space.legal(config[None])[0]
        found = space.locate(space.schedule(config))
        assert found is not None and (found == config).all()
    moved = space.neighbours(space.firsts(), rng)
    assert space.legal(moved).all()
    assert ((moved != space.firsts()).sum(axis=1) == 1).all()


def test_what_is_no_schedule_of_these_options_is_not_located() -> None:
    space = OptionsSpace(CPU, (Option("a", (1, 2)),))
    assert space.locate(DEFAULT) is None
    assert space.locate(schedule_of({"a": 3})) is None
    assert space.locate(schedule_of({"b": 1})) is None
    with pytest.raises(ScheduleError, match="expected options of XLA"):
        options_of(DEFAULT)


@pytest.fixture(scope="module")
def program() -> Program:
    return load(lambda x: jnp.tanh(x @ x), np.ones((4, 4), np.float32))


def twice_as_fast(options: Mapping[str, Value], pairs: int) -> Both | Failure:
    """With one of the options; another one ends the process."""
    if "xla_cpu_prefer_vector_width" in options:
        return Failure("crash", "the process ended with -6")
    return Both((2e-3,) * pairs, ((1e-3 if FASTER in options else 2.1e-3),) * pairs)


def searched(database: Database, program: Program, ask: Ask, searcher: str = "annealing") -> Found:
    return search_options(
        program, database, ask, limits=Limits(trials=24), searcher=searcher, seed=0, target=TARGET,
        toolchain=TOOLS,
    )  # fmt: skip


def test_a_program_is_recorded_without_the_text_of_its_weights() -> None:
    def frozen(weights: float) -> Program:
        table = np.full((64, 64), weights, np.float32)
        table[0, 0] = 0.0
        return load(lambda x: jnp.tanh(x @ table), np.ones((4, 64), np.float32))

    first, same, other = (whole_kernel(frozen(w)) for w in (0.5, 0.5, 0.25))
    assert first == same and first.key != other.key
    assert "dense<0.0> : tensor<64x64xf32>" in first.text and len(first.text) < 2000
    assert "zeros stand for its large constants" in first.text
    assert [t.shape for t in graph_of(first).argument_types] == [(4, 64)]


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_every_searcher_finds_the_option_that_helps(
    tmp_path: Path, program: Program, searcher: str
) -> None:
    with Database(tmp_path / "tuning.db") as database:
        found = searched(database, program, twice_as_fast, searcher)
        assert FASTER in found.options
        assert found.final is not None and found.final.won and found.final.paired.speedup == 2.0
        rows = database.query("select * from trials where run = :run", {"run": found.run})
    assert len(rows) == found.trials
    assert {r["failure_kind"] for r in rows} <= {None, "crash"}


def test_reports_of_the_program_show_the_best_options_beside_its_kernels(
    tmp_path: Path, program: Program
) -> None:
    with Database(tmp_path / "tuning.db") as database:
        run = database.start_run(program, TARGET, TOOLS)
        assert report(database, program.key).best_options is None
        found = searched(database, program, twice_as_fast)
        assert find_run(database, program.key) == run
        told = report(database, program.key)
        assert told.best_options is not None
        assert told.best_options.options == json.loads(json.dumps(dict(found.options)))
        said = " ".join(render(told, color=False).split())
    assert "XLA's best options: 1.00 ms, by itself 2.00 ms: 2.00x" in said


def test_reports_show_the_best_comparison_of_several_searches_and_not_the_newest(
    tmp_path: Path, program: Program
) -> None:
    def little(options: Mapping[str, Value], pairs: int) -> Both | Failure:
        return Both((2e-3,) * pairs, (1.9e-3,) * pairs)

    with Database(tmp_path / "tuning.db") as database:
        best, newest = (searched(database, program, ask) for ask in (twice_as_fast, little))
        found = report(database, newest.run).best_options
    assert found is not None and found.speedup == 2.0
    assert found.options == dict(best.options)


@pytest.mark.parametrize(("seconds", "trials"), [(100.0, 8), (1.0, 1)])
def test_a_budget_in_seconds_is_for_all_trials_and_the_last_comparison(
    tmp_path: Path, program: Program, seconds: float, trials: int
) -> None:
    clock_s = [0.0]

    def slow(options: Mapping[str, Value], pairs: int) -> Both | Failure:
        clock_s[0] += 10.0
        return twice_as_fast(options, pairs)

    with Database(tmp_path / "tuning.db") as database:
        found = search_options(
            program, database, slow, limits=Limits(seconds=seconds), searcher="annealing", seed=0,
            target=TARGET, toolchain=TOOLS, now=lambda: clock_s[0],
        )  # fmt: skip
    assert found.trials == trials and found.final is not None
    assert clock_s[0] == 10.0 * (trials + 1)


def test_where_all_trials_fail_xla_stays_as_it_is(tmp_path: Path, program: Program) -> None:
    with Database(tmp_path / "tuning.db") as database:
        found = searched(database, program, lambda options, pairs: Failure("build", "no"))
        assert (found.options, found.final, found.failures) == ({}, None, found.trials)
        assert report(database, found.run).best_options is None

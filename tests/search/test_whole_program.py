"""What a run says of the whole program is of the program that its records make."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.deploy import accuracy, input_sets
from hlotune.deploy import bench as bench_module
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.bench import Prepared
from hlotune.deploy.bench_result import BenchResult
from hlotune.deploy.inputs import Inputs, example_inputs, random_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.search.finals import whole_program as whole_module
from hlotune.search.finals.comparing import Expected, Within
from hlotune.search.finals.form_costs import LEAST_S, PAIRS
from hlotune.search.finals.interruptible import over_within
from hlotune.search.finals.whole_program import WholeProgram
from hlotune.tuning_logs.database import Database
from tests.support.applied import PARAMETERS, mlp, normal, vouched
from tests.support.given_up import met_by_ctrl_c


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


def test_the_whole_program_has_the_winners_of_the_cache_mode_that_was_searched(
    program: Program, tmp_path: Path
) -> None:
    (site, *_) = sites(program)
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, vouched(site.kernel))
        asked: list[str] = []
        whole = WholeProgram(
            program, database, "standard", host_target(), "warm",
            make_room=lambda: asked.append("room"),
        )  # fmt: skip
        compared = whole.compare(0.2)
        assert compared is not None and asked == ["room"]
        assert whole._compiled_s and 0 < whole._compiled_share < 1, "one site of several is ours"
        assert compared.error is not None and compared.error < 1e-5
        other = WholeProgram(program, database, "standard", host_target(), "model")
        assert other.compare(0.2) is None


def test_a_program_of_long_calls_is_due_what_the_fewest_pairs_take(
    program: Program, tmp_path: Path
) -> None:
    with Database(tmp_path / "a.db") as database:
        whole = WholeProgram(program, database, "standard", host_target(), "warm")
        whole._ready = Prepared(
            program=program, default=jitted(program), inputs=example_inputs(program), judges=(),
            compile_s=5.0, call_s=4.0,
        )  # fmt: skip
        assert whole.due_s(10.0) == pytest.approx(1.0 + 3 * 8.0)
        assert whole.due_s(10.0, Expected(saved_s=1.0)) == pytest.approx(1.0 + 3 * 7.1)
        far_faster_s = 1.0 + 2 * 4.0 + 3 * 0.4
        assert whole.due_s(10.0, Expected(saved_s=4.0)) == pytest.approx(far_faster_s)
        proving = whole.due_s(10.0, within=Within(usual_s=20.0, proving_s=26.0))
        assert proving == pytest.approx(1.0 + 3 * 8.0)
        one = whole.due_s(10.0, within=Within(usual_s=20.0, proving_s=24.0))
        assert one == pytest.approx(1.0 + 8.0)
        checks_alone = whole.due_s(10.0, within=Within(usual_s=8.0, proving_s=24.0))
        assert checks_alone == pytest.approx(1.0)
        whole._ready = replace(whole._ready, checking_s=6.0)
        assert whole.due_s(10.0) == pytest.approx(7.0 + 3 * 8.0)
        proving = whole.due_s(10.0, within=Within(usual_s=20.0, proving_s=26.0))
        assert proving == pytest.approx(7.0 + 3 * 8.0)
        one = whole.due_s(10.0, within=Within(usual_s=20.0, proving_s=24.0))
        assert one == pytest.approx(7.0 + 8.0)


def test_what_is_prepared_is_not_done_again_when_it_is_compared(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site, *_), asked, real = sites(program), list[dict[str, Any]](), bench_module.compared

    def noting(ready: Prepared, tuned: TunedFunction, **limits: Any) -> BenchResult:
        asked.append({"ready": ready, **limits})
        return real(ready, tuned, **limits)

    monkeypatch.setattr(whole_module, "compared", noting)
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, vouched(site.kernel))
        whole = WholeProgram(program, database, "standard", host_target(), "warm")
        assert whole.due_s(timing_s=1.0) == 0.0
        whole.prepare(60.0)
        assert whole._ready is not None
        ready = whole._ready = replace(whole._ready, call_s=0.001)  # whatever else runs here
        assert 0.0 < whole.due_s(timing_s=0.0) == whole.due_s(timing_s=LEAST_S)
        monkeypatch.setattr(accuracy, "evaluate", None)  # the oracle
        monkeypatch.setattr(whole_module, "prepared", None)
        late = whole.compare(0.0)
        assert late is not None and late.paired is not None
    (limits,) = asked
    assert limits["ready"] is ready
    assert (limits["limit_s"], limits["pairs"]) == (LEAST_S, PAIRS), "as many as a second allows"


def test_calls_of_a_third_of_a_second_are_expected_to_take_the_pairs_that_prove_something(
    program: Program, tmp_path: Path
) -> None:
    with Database(tmp_path / "a.db") as database:
        whole = WholeProgram(program, database, "standard", host_target(), "warm")
        whole.prepare(60.0)
        assert whole._ready is not None
        whole._ready = replace(whole._ready, compile_s=0.5, call_s=0.35)
        assert whole.due_s(timing_s=0.0) == pytest.approx(0.5 + 10 * 0.35 + 6 * 2 * 0.35)


@dataclass
class Watched(Turns):
    """Knows whether it is its turn."""

    is_alone: bool = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        assert not self.is_alone, "not to be nested"
        self.is_alone = True
        try:
            yield
        finally:
            self.is_alone = False


def test_others_wait_while_a_program_is_prepared_and_checked(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site, *_), turns, seen = sites(program), Watched(), list[tuple[str, bool]]()

    def watched(module: object, name: str) -> None:
        real: Any = getattr(module, name)

        def called(*arguments: Any, **named: Any) -> Any:
            seen.append((name, turns.is_alone))
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, called)

    watched(whole_module, "prepared")
    watched(bench_module, "judged")
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, vouched(site.kernel))
        whole = WholeProgram(program, database, "standard", host_target(), "warm", turns)
        whole.prepare(60.0)
        assert whole.compare(0.2) is not None
    assert seen == [("prepared", True), ("judged", True)]
    assert not turns.is_alone


def test_preparing_that_ctrl_c_has_given_up_has_its_turn_until_it_is_over(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, turns = threading.Event(), Watched()

    def preparing(*_: object, **__: object) -> None:
        met_by_ctrl_c(gate)

    monkeypatch.setattr(whole_module, "prepared", preparing)
    with Database(tmp_path / "a.db") as database:
        whole = WholeProgram(program, database, "standard", host_target(), "warm", turns)
        try:
            with pytest.raises(KeyboardInterrupt):
                whole.prepare(60.0)
            assert turns.is_alone
        finally:
            gate.set()
        assert over_within(60.0)
    assert not turns.is_alone


def test_compiling_takes_what_the_first_call_takes(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what looking for inputs takes that leave the results finite."""
    clock_s, calls_s = [0.0], iter((3.0, 0.25))

    def called(*_: Any) -> list[Any]:
        clock_s[0] += next(calls_s)
        return []

    def tamed(program: Program, default: object, seed: int, *_: Any) -> tuple[Inputs, Inputs]:
        clock_s[0] += 100.0
        return example_inputs(program, seed), random_inputs(program, seed)

    monkeypatch.setattr(input_sets, "time", SimpleNamespace(perf_counter=lambda: clock_s[0]))
    monkeypatch.setattr(input_sets, "called_once", called)
    monkeypatch.setattr(input_sets, "tame_inputs", tamed)
    monkeypatch.setattr(accuracy.Judge, "of", lambda *_: None)
    found = bench_module.prepared(program)
    assert (found.compile_s, found.call_s) == (3.0, 0.25)


def test_an_oracle_without_time_leaves_the_program_to_be_held_against_the_default(
    program: Program, tmp_path: Path
) -> None:
    (site, *_) = sites(program)
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, vouched(site.kernel))
        whole = WholeProgram(program, database, "standard", host_target(), "warm")
        whole.prepare(0.0)
        compared = whole.compare(0.2)
    assert compared is not None and compared.error is not None
    assert compared.default_error is None

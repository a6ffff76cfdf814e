"""Two forms of a program in turns, with and without some kernels of ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.deploy import forms as forms_module
from hlotune.deploy import timer as timer_module
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.calling.callable import JittedProgram
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import Site, overlap, sites
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.timing import always_apart
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.finals.forms import Compared, confidence_of
from hlotune.search.finals.whole_program import WholeProgram
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final
from tests.support.applied import PARAMETERS, final, mlp, normal, vouched

Times = Callable[[frozenset[str]], Sequence[float]]
"""Seconds of calls, one after the other, of a program with kernels of ours at some sites."""


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


@pytest.fixture(scope="module")
def both(program: Program) -> tuple[Site, Site]:
    """The two products of the program."""
    first, second = (s for s in sites(program) if s.name in ("dot0", "dot1"))
    return first, second


@pytest.fixture
def whole(program: Program, tmp_path: Path) -> Any:
    with Database(tmp_path / "a.db") as database:
        database.start_run(program, host_target(), toolchain(), cache="warm")
        yield WholeProgram(program, database, "standard", host_target(), "warm")


def simulated(monkeypatch: pytest.MonkeyPatch, times: Times) -> None:
    """Lets calls of whole programs take some seconds, without calling them."""
    calls = dict[frozenset[str], int]()

    def sample(_: Any, function: TunedFunction | JittedProgram, count: int) -> float:
        ours = function.sites if isinstance(function, TunedFunction) else ()
        places = frozenset(site.name for site in ours)
        calls[places] = calls.get(places, 0) + 1
        own = times(places)
        return own[calls[places] % len(own)]

    monkeypatch.setattr(timer_module.Timer, "sample", sample)
    monkeypatch.setattr(timer_module, "apart_of", lambda target: always_apart)


def found(whole: WholeProgram, base: Mapping[str, Final], more: Mapping[str, Final]) -> bool | None:
    compared = whole.is_faster(base, more, 0.95, 1.0, 10.0)
    return None if compared is None else compared.is_faster


def test_a_kernel_that_loses_alone_is_faster_in_a_program_that_xla_runs_badly(
    whole: WholeProgram, both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone the default takes half the time of ours; in the program it takes ten times as long."""
    simulated(monkeypatch, lambda places: (0.01,) if "dot1" in places else (0.04, 0.05))
    loses = {both[1].kernel.key: vouched(both[1].kernel, default_s=1e-5, tuned_s=2e-5)}
    assert found(whole, {}, loses) is True


def test_a_kernel_that_wins_alone_is_no_gain_where_xla_has_it_for_nothing(
    whole: WholeProgram, both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA computes it with its neighbours, which have its operands anyway."""
    simulated(monkeypatch, lambda places: (0.02,) if "dot1" in places else (0.01,))
    wins = {both[1].kernel.key: vouched(both[1].kernel)}
    assert found(whole, {}, wins) is False
    left_out = {both[1].kernel.key: final(DEFAULT)}
    assert found(whole, wins, left_out), "nor does it stay once it won"


@pytest.mark.parametrize(("slow_calls", "is_faster"), [(7, True), (3, False)])
def test_the_default_counts_in_both_of_its_modes(
    whole: WholeProgram,
    both: tuple[Site, Site],
    monkeypatch: pytest.MonkeyPatch,
    slow_calls: int,
    is_faster: bool,
) -> None:
    """So many of ten calls take twice as long: a user has all of them, and ours is between."""
    default = (0.02,) * slow_calls + (0.01,) * (10 - slow_calls)
    simulated(monkeypatch, lambda places: (0.013,) if places else default)
    assert found(whole, {}, {both[0].kernel.key: vouched(both[0].kernel)}) == is_faster


def test_forms_that_are_alike_are_not_timed(
    whole: WholeProgram, both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms_module, "judged", None)
    same = {both[0].kernel.key: vouched(both[0].kernel)}
    compared = whole.is_faster(same, same, 0.95, 1.0, 10.0)
    assert compared == Compared(is_faster=False, standing=frozenset(same), is_same=True)


def test_a_kernel_that_another_covers_does_not_stand_in_the_form(
    whole: WholeProgram, program: Program, both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(monkeypatch, lambda places: (0.01,) if places else (0.04,))
    whole_group, part = next(
        (a, b) for a in sites(program) for b in sites(program) if overlap(a, b) and a.ops > b.ops
    )
    tried = {
        whole_group.kernel.key: vouched(whole_group.kernel, default_s=3e-5, tuned_s=1e-5),
        part.kernel.key: vouched(part.kernel),
    }
    compared = whole.is_faster({}, tried, 0.95, 1.0, 10.0)
    assert compared is not None
    assert compared.standing == {whole_group.kernel.key}


@pytest.mark.parametrize("call_s", [0.3, 1.5, 5.0])
def test_calls_too_long_for_a_proof_are_not_made(
    whole: WholeProgram,
    both: tuple[Site, Site],
    monkeypatch: pytest.MonkeyPatch,
    call_s: float,
) -> None:
    """A form of three undecided kernels takes eight pairs, or five of calls of seconds."""
    simulated(monkeypatch, lambda places: pytest.fail("timed"))
    monkeypatch.setattr(forms_module, "judged", None)
    whole._ready = replace(whole.ready_in(10.0), call_s=call_s)
    more = {both[0].kernel.key: vouched(both[0].kernel)}
    assert whole.is_faster({}, more, confidence_of(3), 3.0, 10.0) is None


@pytest.mark.parametrize(("call_s", "pairs"), [(0.1, 8), (0.4, None), (1.2, None)])
def test_as_many_pairs_are_made_as_prove_something_or_none(
    program: Program, monkeypatch: pytest.MonkeyPatch, call_s: float, pairs: int | None
) -> None:
    """Timed calls take twice as long here as those that warm up, and no pair is left out for it."""
    clock_s, calls = [0.0], [0]

    def function(*_: Any, **__: Any) -> Any:
        clock_s[0] += call_s if calls[0] < 2 * timer_module.WARM_CALLS else 2 * call_s
        calls[0] += 1
        return ()

    monkeypatch.setattr(timer_module, "time", SimpleNamespace(perf_counter=lambda: clock_s[0]))
    turns = Turns(now=lambda: clock_s[0])
    timer = timer_module.Timer(program, example_inputs(program), host_target(), 2.3, turns)
    timer.apart = always_apart
    sides = timer.proving(function, function, 30, confidence_of(3))
    assert (sides and len(sides[0])) == pairs
    if pairs is None:
        assert calls[0] <= 2 * timer_module.WARM_CALLS, "nothing but the calls that warm up"


def test_both_sides_are_timed_in_one_way_where_one_alone_is_short(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s, calls = [0.0], {"short": 0, "long": 0}

    def function(name: str, call_s: float) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            clock_s[0] += call_s
            calls[name] += 1
            return ()

        return call

    monkeypatch.setattr(timer_module, "time", SimpleNamespace(perf_counter=lambda: clock_s[0]))
    timer = timer_module.Timer(program, example_inputs(program), host_target(), 9.0, Turns())
    timer.apart = always_apart
    timer.paired(function("short", 19e-3), function("long", 21e-3), 10)
    assert calls["short"] == calls["long"]


def test_a_form_that_is_wrong_is_not_timed(
    whole: WholeProgram, both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any) -> None:
        raise WrongResult("off by one")

    monkeypatch.setattr(forms_module, "judged", wrong)
    simulated(monkeypatch, lambda places: pytest.fail("timed"))
    with pytest.raises(WrongResult, match="off by one"):
        whole.is_faster({}, {both[0].kernel.key: vouched(both[0].kernel)}, 0.95, 1.0, 10.0)


def test_a_sample_of_short_calls_is_one_of_a_loop_of_them(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call behind one of the other program takes three times as long: its threads sleep.
    Where a sample has three calls, that alone would make it 1.7 times as slow.
    """
    clock_s, last = [0.0], list[str]()

    def function(name: str, call_s: float, first_s: float) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            clock_s[0] += call_s if last[-1:] == [name] else first_s
            last.append(name)
            return ()

        return call

    monkeypatch.setattr(timer_module, "time", SimpleNamespace(perf_counter=lambda: clock_s[0]))
    inputs = example_inputs(program)
    timer = timer_module.Timer(program, inputs, host_target(), 9.0, Turns())
    default = function("default", 0.44e-3, 0.44e-3)
    ours = function("ours", 0.4e-3, 1.2e-3)
    calls, default_s, ours_s = timer.paired(default, ours, 10)
    assert calls == 3
    assert default_s == pytest.approx([0.44e-3] * 10)
    assert ours_s == pytest.approx([0.4e-3] * 10)


def test_long_calls_need_no_others_ahead_of_them(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s, calls = [0.0], [0]

    def function(*_: Any, **__: Any) -> Any:
        clock_s[0] += 0.5
        calls[0] += 1
        return ()

    monkeypatch.setattr(timer_module, "time", SimpleNamespace(perf_counter=lambda: clock_s[0]))
    timer = timer_module.Timer(program, example_inputs(program), host_target(), 9.0, Turns())
    timer.apart = always_apart
    timer.paired(function, function, 10)
    assert calls[0] == 2 * timer_module.WARM_CALLS + 2 * 10


def test_a_pair_of_short_calls_has_a_run_up_ahead_of_each() -> None:
    run_up_s = timer_module.RUN_UP_S
    assert timer_module.pair_s(4e-3) == pytest.approx(2 * (run_up_s + 8e-3))
    assert timer_module.pair_s(6e-4) == pytest.approx(2 * (run_up_s + 6e-4 + 1.2e-3))
    assert timer_module.pair_s(1e-5) == pytest.approx(2 * (run_up_s + 1e-5 + 1e-3))
    assert timer_module.pair_s(0.1) == pytest.approx(0.2)

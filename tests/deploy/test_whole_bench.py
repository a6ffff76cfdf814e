"""No figure of a whole program before it is right; what disappoints or is wrong is named."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from hlotune.deploy import accuracy
from hlotune.deploy import bench as benching
from hlotune.deploy.apply import Explanation, TunedFunction
from hlotune.deploy.bench import Prepared, bench, checked, compared
from hlotune.deploy.bisection import MOST_S, MOST_SEARCHED, by_kernel, culprits, shortfalls
from hlotune.deploy.inputs import example_inputs
from hlotune.deploy.replacement import Replacement, assembled
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.machine import affinity
from hlotune.measure.machine.affinity import pinned
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import TargetError, UnsupportedKernel, WrongResult
from tests.support.applied import DIRECT, final, normal


def scaled(site: Site, program: Program, factor: float) -> Replacement:
    """A replacement made by hand: the site's dot, scaled."""
    lhs, rhs = (program.graph.types[v] for v in site.arguments)
    out = program.graph.types[site.results[0]]
    text = f"""module {{ func.func public @main(%a: {lhs}, %b: {rhs}) -> {out} {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({lhs}, {rhs}) -> {out}
      %1 = stablehlo.constant dense<{factor:e}> : {out}
      %2 = stablehlo.multiply %0, %1 : {out}
      return %2 : {out} }} }}"""
    return Replacement(site, text)


def chain(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = jnp.sin(x @ w)[:, ::-1]
    return x


@pytest.fixture(scope="module")
def deep() -> Program:
    return load(chain, normal(4, 6), *(normal(6, 6) for _ in range(4)))


def bare_sites(program: Program) -> list[Site]:
    """The sites of dots alone."""
    return [s for s in sites(program) if len(s.ops) == 1 and s.pattern == "contraction"]


def by_hand(program: Program, *factors: float, promised_s: float = 0.0) -> TunedFunction:
    """A tuned program whose bare dots are replaced by scaled ones."""
    bare = bare_sites(program)
    made = tuple(scaled(s, program, f) for s, f in zip(bare, factors, strict=True))
    paired = final(DIRECT, default_s=1.0, tuned_s=1.0 - promised_s).paired
    explained = tuple(
        Explanation(site=s, status="tuned", reason="by hand", paired=paired) for s in bare
    )
    function = assembled(program, made, host_target())
    return TunedFunction(program, made, "standard", host_target(), explained, function)


def test_a_right_replacement_is_timed_in_pairs(deep: Program) -> None:
    result = bench(deep, by_hand(deep, 1, 1, 1, 1), pairs=6)
    assert len(result.default_s) == len(result.tuned_s) == 6
    assert [(a.inputs, a.wrong) for a in result.accuracy] == [("example", None), ("random", None)]
    assert 0 < result.speedup.low <= result.speedup.median <= result.speedup.high


@pytest.mark.parametrize("wrong", range(4))
def test_a_wrong_replacement_is_named_before_any_figure(deep: Program, wrong: int) -> None:
    factors = [1.0] * 4
    factors[wrong] = 1.01
    tuned = by_hand(deep, *factors)
    with pytest.raises(WrongResult, match=f"to blame: dot{wrong}[. ]") as error:
        bench(deep, tuned)
    site = tuned.sites[wrong]
    assert error.value.kernels == (site.kernel.key,)
    assert error.value.sites == (f"{site.name} ({site.label})",)


def test_a_result_of_nothing_but_nan_is_wrong(deep: Program) -> None:
    with pytest.raises(WrongResult, match=r"to blame: dot2[. ]"):
        bench(deep, by_hand(deep, 1, 1, float("1e30") ** 2, 1))


def test_figures_in_json_have_units_in_their_names(deep: Program) -> None:
    data = json.loads(json.dumps(bench(deep, by_hand(deep, 1, 1, 1, 1), pairs=2).to_json()))
    assert data["speedup_high"] is None  # too few pairs to say
    numbers = {k for k, v in data.items() if isinstance(v, float)}
    assert all(k.endswith("_s") or k.startswith("speedup") for k in numbers)
    assert [k["site"] for k in data["kernels"]] == [s.name for s in bare_sites(deep)]


def test_a_whole_that_gains_less_than_promised_is_bisected(deep: Program) -> None:
    result = bench(deep, by_hand(deep, 1, 1, 1, 1, promised_s=0.5), pairs=2)
    assert {name for s in result.shortfalls for name in s.sites} == {
        s.name for s in bare_sites(deep)
    }
    assert all(s.promised_s == 0.5 for s in result.shortfalls)


def replacements(deep: Program) -> tuple[Replacement, ...]:
    return by_hand(deep, 1, 1, 1, 1).replacements


def test_bisection_finds_the_one_that_disappoints(deep: Program) -> None:
    parts = replacements(deep)
    gains = {id(r): 1.0 for r in parts} | {id(parts[2]): -3.0}
    found = shortfalls(parts, lambda r: 1.0, lambda some: sum(gains[id(r)] for r in some))
    assert [(s.sites, s.gained_s) for s in found] == [((parts[2].site.name,), -3.0)]


def test_bisection_stops_when_time_is_up(deep: Program) -> None:
    assert shortfalls(replacements(deep), lambda r: 1.0, lambda some: None) == ()
    assert shortfalls((), lambda r: 1.0, lambda some: -1e-6) == (), "nothing falls short of nothing"


@dataclass
class FakeTimer:
    """A run takes a second less what each kernel in it gains, by the name of its site."""

    gains_s: dict[str, float]
    left_s: float = 100.0
    noise_s: float = 0.0
    compared: list[int] = field(default_factory=list)
    """How many kernels of ours the first of both had, where the other is the tuned program."""

    def paired(self, first: Any, second: Any, pairs: int, *, is_warm: bool = False) -> Any:
        if isinstance(second, TunedFunction):
            self.compared.append(len(first))
        return 1, self.samples_s(first, pairs), self.samples_s(second, pairs)

    def samples_s(self, function: Any, pairs: int) -> tuple[float, ...]:
        parts = function.replacements if isinstance(function, TunedFunction) else function
        time_s = 1.0 - sum(self.gains_s[r.site.name] for r in parts)
        swing_s = self.noise_s if isinstance(function, TunedFunction) else 0.0
        return tuple(time_s + swing_s * (-1) ** n for n in range(pairs))


def compared_by(timer: FakeTimer, tuned: TunedFunction, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result of a program whose variants are the kernels that they have."""
    monkeypatch.setattr(benching, "Timer", lambda *_: timer)
    monkeypatch.setattr(benching, "assembled", lambda program, parts, target: tuple(parts))
    ready = Prepared(
        program=tuned.program, default=(),  # type: ignore[arg-type]
        inputs=example_inputs(tuned.program), judges=(), compile_s=1.0, call_s=1.0,
    )  # fmt: skip
    return compared(ready, tuned)


@pytest.fixture(scope="module")
def uneven() -> Program:
    """Four products of four kernels."""
    widths = (6, 7, 8, 9, 10)
    return load(chain, normal(4, 6), *map(normal, widths, widths[1:]))


@pytest.fixture
def tuned(uneven: Program) -> TunedFunction:
    return by_hand(uneven, 1, 1, 1, 1, promised_s=0.2)


def gains_s(tuned: TunedFunction, *each: float) -> dict[str, float]:
    return {site.name: gain for site, gain in zip(tuned.sites, each, strict=True)}


def test_one_without_which_the_program_is_faster_is_told_from_winners(
    tuned: TunedFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = FakeTimer(gains_s(tuned, 0.2, 0.2, -0.3, 0.2))
    found = compared_by(timer, tuned, monkeypatch)
    assert [(s.sites, s.is_slower) for s in found.shortfalls] == [((tuned.sites[2].name,), True)]
    assert found.slower == (tuned.sites[2].kernel.key,)
    assert timer.compared == [0, 3]  # the default, then all others of ours
    assert found.to_json()["shortfalls"][0]["is_slower"]


@pytest.mark.parametrize(
    ("each", "options"),
    [
        ((0.2, 0.2, -0.3, 0.2), {"noise_s": 0.4}),
        ((0.2, 0.2, -0.3, 0.2), {"left_s": 50.0}),
        ((0.1, 0.05, 0.05, 0.05), {}),
    ],
    ids=["noise", "no time", "gains less than promised"],
)
def test_what_is_not_proven_to_slow_a_program_down_is_not_said_to(
    tuned: TunedFunction, monkeypatch: pytest.MonkeyPatch, each: Any, options: Any
) -> None:
    found = compared_by(FakeTimer(gains_s(tuned, *each), **options), tuned, monkeypatch)
    assert found.shortfalls
    assert found.slower == ()


PARTS = tuple(range(20))


@pytest.mark.parametrize("bad", [{0}, {19}, {7}, {3, 4}, {0, 9, 19}, {1, 5, 6, 18}])
def test_parts_that_are_wrong_are_found_and_no_others(bad: set[int]) -> None:
    assert set(culprits(PARTS, lambda some: bool(bad & set(some)))) == bad


@pytest.mark.parametrize("most", [17, 18, 19])
def test_of_parts_that_are_wrong_together_only_so_many_are_blamed_as_it_takes(most: int) -> None:
    assert len(culprits(PARTS, lambda some: len(some) > most)) == len(PARTS) - most
    assert culprits(PARTS, lambda some: {4, 11} <= set(some)) == (11,)


def test_what_is_left_without_the_blamed_is_right_however_many_they_are() -> None:
    tried: list[int] = []

    def is_wrong(some: Sequence[int]) -> bool:
        tried.append(len(some))
        return any(part % 2 for part in some)

    blamed = culprits(PARTS, is_wrong)
    left = set(PARTS) - set(blamed)
    assert left and not any(part % 2 for part in left)
    assert len(tried) <= MOST_SEARCHED * (len(PARTS).bit_length() + 1)


def test_culprits_are_looked_for_so_long_and_then_all_that_may_be_wrong_are_blamed() -> None:
    tried = list[int]()

    def is_wrong(some: Sequence[int]) -> bool:
        tried.append(len(some))
        return bool({4, 11} & set(some))

    found = culprits(PARTS, is_wrong, now_s=lambda: MOST_S / 5 * len(tried))
    assert set(found) == set(PARTS[4:])
    assert len(tried) == len(PARTS).bit_length() + 1


@pytest.mark.parametrize(("bad", "blamed"), [({4}, {2, 3, 4}), ({4, 11}, set(PARTS[2:]))])
def test_halving_ends_when_time_is_up_and_what_is_right_without_its_rest_stays(
    bad: set[int], blamed: set[int]
) -> None:
    tried = list[int]()

    def is_wrong(some: Sequence[int]) -> bool:
        tried.append(len(some))
        return bool(bad & set(some))

    assert set(culprits(PARTS, is_wrong, now_s=lambda: MOST_S / 2 * len(tried))) == blamed
    assert tried == [10, 5, 2, 17]


def test_all_sites_of_a_kernel_are_blamed_at_once(deep: Program) -> None:
    same, other = (
        by_hand(deep, 1, 1, 1, 2).replacements[:3],
        by_hand(deep, 1, 1, 1, 2).replacements[3],
    )
    groups = by_kernel([same[0], other, same[1], same[2]])
    assert [tuple(r.site.name for r in sites) for sites in groups] == [
        tuple(r.site.name for r in same), (other.site.name,),
    ]  # fmt: skip


def test_nobody_is_blamed_where_the_program_is_wrong_without_replacements() -> None:
    assert culprits(PARTS, lambda some: True) == ()
    assert culprits(PARTS[:1], lambda some: bool(some)) == (0,)


def test_a_program_that_is_wrong_without_our_kernels_says_so(
    deep: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise UnsupportedKernel("no oracle here")

    monkeypatch.setattr(accuracy, "evaluate", unknown)
    tuned = by_hand(deep, 1, 1, 1, 1)
    with pytest.raises(WrongResult, match="no site, for it is wrong without our kernels") as error:
        checked(deep, tuned, lambda *v: 2 * chain(*v), [example_inputs(deep)])
    assert error.value.kernels == ()


def test_fewer_threads_are_fewer_processors_for_the_time_of_the_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
        assert host_target().threads == 1
    assert os.sched_getaffinity(0) == before


def test_threads_bound_to_a_processor_that_stays_remain_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {7: {1}, 8: {0, 1, 2}, 9: {2}}
    monkeypatch.setattr(affinity, "_processors", lambda: [0, 1, 2])
    monkeypatch.setattr(affinity, "_threads", lambda: list(now))
    monkeypatch.setattr(affinity, "_bind", now.__setitem__)
    monkeypatch.setattr(os, "sched_getaffinity", now.__getitem__)
    with pinned(2):
        assert now == {7: {1}, 8: {0, 1}, 9: {0, 1}}
    assert now == {7: {1}, 8: {0, 1, 2}, 9: {2}}


def test_a_system_that_binds_no_threads_refuses_a_smaller_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity, "_THREADS", tmp_path / "none")
    with pinned(len(os.sched_getaffinity(0))):
        pass
    with pytest.raises(TargetError, match="use the target of all processors"), pinned(0):
        pass

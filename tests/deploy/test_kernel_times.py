"""Kernels that were put in, against their defaults again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hlotune.codegen.built import Built
from hlotune.deploy.apply import TunedFunction, apply
from hlotune.deploy.kernel_times import PAIRS, TIMING_S, timed_again, timed_by
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.errors import ProgramError, WrongResult
from hlotune.tuning_logs.finals import Paired
from tests.support.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


@pytest.fixture(scope="module")
def tuned(program: Program, tmp_path_factory: pytest.TempPathFactory) -> TunedFunction:
    """With records, twice as fast as the default, of both of its dots."""
    sites = first_sites(program)
    path = tmp_path_factory.mktemp("records") / "a.db"
    finals = {sites[name]: final(DIRECT) for name in ("dot0", "dot1")}
    return apply(program, database=recorded(path, finals))


@dataclass
class FakeRunner:
    """A millisecond of ours stands against defaults of so many seconds, by kernel.

    A failure stands for the candidate's, an error for the default's.
    """

    defaults: dict[str, float | Failure | ProgramError] = field(default_factory=dict)
    asked: list[tuple[Kernel, Candidate]] = field(default_factory=list)

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        limit_s: float,
    ) -> Comparison:
        assert (pairs, limit_s) == (PAIRS, TIMING_S)
        self.asked += [(kernel, candidate) for candidate, _ in objects]
        found = self.defaults.get(kernel.key, 3e-3)
        if isinstance(found, ProgramError):
            raise found
        if isinstance(found, Failure):
            return Comparison(Measurement(samples_s=(3e-3,)), (found,))
        ours = Measurement(samples_s=(1e-3,) * pairs)
        return Comparison(Measurement(samples_s=(found,) * pairs), (ours,))


def test_each_kernel_is_compared_with_its_default_once_however_many_places_it_has(
    tuned: TunedFunction,
) -> None:
    runner, told = FakeRunner(), list[str]()
    twice = replace(tuned, replacements=(*tuned.replacements, *tuned.replacements))
    found = dict(timed_by(runner, twice, told.append))
    keys = [s.kernel.key for s in tuned.sites]
    assert [kernel.key for kernel, _ in runner.asked] == keys == list(found)
    assert {candidate.schedule for _, candidate in runner.asked} == {DIRECT}
    assert len(told) == 2 and told[0].startswith(f"[1/2] {tuned.sites[0].label}")
    for one in found.values():
        assert isinstance(one, Paired)
        assert one.speedup == one.low == one.high == pytest.approx(3.0)
        assert len(one.default_s) == len(one.tuned_s) == PAIRS


@pytest.mark.parametrize(
    ("outcome", "kind", "message"),
    [
        (Failure("crash", "the worker died"), "crash", "the worker died"),
        (ProgramError("expected XLA to run it"), "device", "expected XLA to run it"),
    ],
    ids=["ours", "default"],
)
def test_a_comparison_that_fails_is_a_failure_and_the_others_go_on(
    tuned: TunedFunction, outcome: Failure | ProgramError, kind: str, message: str
) -> None:
    first, second = (s.kernel.key for s in tuned.sites)
    found = dict(timed_by(FakeRunner({first: outcome}), tuned, lambda words: None))
    assert found[first] == Failure(kind, message)  # type: ignore[arg-type]
    assert isinstance(found[second], Paired)


def test_a_kernel_that_proves_wrong_now_is_an_error_that_names_its_site(
    tuned: TunedFunction,
) -> None:
    site = tuned.sites[0]
    runner = FakeRunner({site.kernel.key: Failure("wrong_result", "3 of 8 elements differ")})
    with pytest.raises(WrongResult, match=r"expected results of dot0 .*got 3 of 8") as caught:
        list(timed_by(runner, tuned, lambda words: None))
    assert caught.value.kernels == (site.kernel.key,)
    assert caught.value.sites == (f"dot0 ({site.label})",)


def test_a_kernel_is_timed_in_turns_with_its_default_on_this_machine(
    program: Program, tmp_path: Path
) -> None:
    site = first_sites(program)["dot0"]
    one = apply(program, database=recorded(tmp_path / "a.db", {site: final(DIRECT)}))
    ((_, found),) = timed_again(one, lambda words: None)
    assert isinstance(found, Paired)
    assert 0 < found.low <= found.speedup <= found.high < float("inf")


def test_where_nothing_was_put_in_no_worker_is_asked(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.measure.workers.channel.Channel.request", None)
    none = apply(program, database=recorded(tmp_path / "a.db", {}))
    assert list(timed_again(none, lambda words: None)) == []

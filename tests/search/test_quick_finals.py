"""A budget that is too short to search all kernels decides the rest by their first candidates."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.costmodel.model import CostModel
from hlotune.costmodel.trees import Trees
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.budget import FIRST
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.reserve import Reserve
from hlotune.search.finals.finals import FEWEST_PAIRS
from hlotune.search.finals.quick import TOGETHER, firsts_by_liking, liked
from hlotune.search.progress import Batch, Event, KernelSkipped, KernelStarted
from hlotune.search.tasks import Task, tasks
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from tests.support.sessions import UNDER, FakeDevice, Objects, run, task
from tests.support.toy import ToySpace, TrueModel

TASKS = tuple(task(f"k{n}", n) for n in range(16))
COSTLY = (
    replace(TASKS[0], default_lag=1000.0), *TASKS[1:7], replace(TASKS[7], weight=50.0), *TASKS[8:],
)  # fmt: skip
"""The first is opened first, and the eighth promises most after its quick final."""
SHORT, LONG = Limits(seconds=6.0), Limits(seconds=20.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


class Telling(FakeDevice):
    """Notes the pairs of each comparison, by label."""

    def __init__(self, failing: str = "") -> None:
        super().__init__(TASKS, {t.label: 20e-3 for t in TASKS})
        self.met: list[tuple[str, int]] = []
        self.fails = failing

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        label = self._task(kernel).label
        self.met.append((label, pairs))
        found = super().final(kernel, objects, pairs)
        if label != self.fails:
            return found
        return Comparison(found.default, tuple(Failure("wrong_result", "") for _ in objects))


def test_every_kernel_has_a_final_where_the_budget_is_too_short_to_search_all(
    database: Database,
) -> None:
    device, events = Telling(), list[Event]()
    result = run(database, TASKS, device, limits=SHORT, events=events)
    assert [k.label for k in result.kernels] == [t.label for t in TASKS]
    assert all(k.won for k in result.kernels)
    assert result.wall_s <= 6.0
    assert not [e for e in events if isinstance(e, KernelSkipped)]
    assert {e.label for e in events if isinstance(e, KernelStarted)} == {t.label for t in TASKS}
    assert next(pairs for label, pairs in device.met if label == "k7") == FEWEST_PAIRS
    for kernel in result.kernels:
        assert decision(database, kernel.key, **UNDER).schedule.algorithm != XLA


@pytest.mark.parametrize("compile_s", [0.28, 0.55, 0.75])
def test_where_to_time_defaults_takes_the_budget_even_the_first_has_a_quick_final_alone(
    compile_s: float, database: Database
) -> None:
    """Those behind the first take 5 s or more, where 4.5 of 6 are left beside closing."""

    class Slow(Telling):
        """Its default compiler is slow to compile."""

        def default(self, kernel: Kernel) -> Measurement:
            self.elapsed_s += compile_s
            return super().default(kernel)

    device, events = Slow(), list[Event]()
    result = run(database, TASKS, device, limits=SHORT, events=events)
    assert device.met[0] == ("k0", FEWEST_PAIRS)
    assert result.trials == len(device.met)
    assert len(result.won) == len({label for label, _ in device.met}) >= 5
    skipped = {e.label for e in events if isinstance(e, KernelSkipped)}
    assert {k.label for k in result.kernels} | skipped == {t.label for t in TASKS}


def test_a_kernel_that_takes_longer_than_is_left_gives_its_place_to_those_that_do_not(
    database: Database,
) -> None:
    """Five kernels take two seconds each, which they are known to, and the others a tenth."""
    costly = {t.label for t in TASKS[2::3]}

    def took_s(label: str) -> float:
        return 2.0 if label in costly else 0.1

    class Uneven(Telling):
        def compare(self, kernel: Kernel, *arguments: Any, **named: Any) -> Comparison:
            self.elapsed_s += took_s(self._task(kernel).label)
            return super().compare(kernel, *arguments, **named)

    uneven = [
        replace(t, weight=20.0 if t.label in costly else 1.0, default_lag=1e7 * took_s(t.label))
        for t in TASKS
    ]
    result = run(database, uneven, Uneven(), limits=SHORT)
    assert result.wall_s <= 6.0
    decided = {k.label for k in result.kernels}
    assert len(decided & costly) == 2
    assert decided >= {t.label for t in TASKS} - costly


def test_the_code_of_winners_is_kept(database: Database) -> None:
    kept = list[str]()
    result = run(database, TASKS, Telling(), limits=SHORT, keep=lambda k, *_: kept.append(k.key))
    assert set(kept) == {k.key for k in result.won}


def test_kernels_of_quick_finals_are_compiled_together_before_they_are_compared(
    database: Database,
) -> None:
    class Compiling(Telling):
        def compile_together(self, objects: Any, **_: Any) -> None:
            labels = [self._task(kernel).label for kernel, _ in objects]
            together.append(labels)
            assert not {label for label, _ in self.met} & set(labels)

    together = list[list[str]]()
    run(database, TASKS, Compiling(), limits=SHORT)
    several = [labels for labels in together if len(set(labels)) > 1]
    assert {len(labels) for labels in several} <= {2, 3, TOGETHER}
    assert len({label for labels in several for label in labels}) >= len(TASKS) - 2


def test_first_candidates_come_first_where_there_is_barely_time_to_search_all(
    database: Database,
) -> None:
    device = Telling()
    result = run(database, TASKS, device, limits=Limits(seconds=14.0))
    first = [pairs for _, pairs in device.met[: len(TASKS) - 1]]
    assert first == [FEWEST_PAIRS] * (len(TASKS) - 1)
    assert all(k.won for k in result.kernels)
    assert result.trials > 10 * len(TASKS)


def test_with_more_time_all_kernels_are_searched_instead(database: Database) -> None:
    device, events = Telling(), list[Event]()
    run(database, TASKS[:4], device, limits=LONG, events=events)
    told = [e for e in events if isinstance(e, KernelStarted | Batch)]
    behind = [(e.label, after) for e, after in pairwise(told) if isinstance(e, KernelStarted)]
    assert {label for label, _ in behind} == {t.label for t in TASKS[:4]}
    assert all(isinstance(e, Batch) and e.label == label for label, e in behind)
    assert sum(pairs for _, pairs in device.met) > FEWEST_PAIRS * len(device.met)


def test_a_kernel_whose_first_candidate_fails_may_still_be_searched(database: Database) -> None:
    result = run(database, TASKS, Telling(failing="k3"), limits=SHORT)
    lost = {t.label for t in TASKS} - {k.label for k in result.won}
    assert lost == {"k3"}


@pytest.mark.parametrize(("times", "wins"), [(15.0, True), (17.0, False)])
def test_a_first_candidate_that_is_off_by_over_sixteen_times_the_defaults_error_does_not_win(
    times: float, wins: bool, database: Database
) -> None:
    device = Telling()
    device.off_by = times * 0.01
    errors = {t.label: 0.5 for t in TASKS}
    result = run(database, TASKS, device, limits=SHORT, default_errors=errors)
    assert len(device.met) > len(TASKS) / 2
    assert bool(result.won) is wins
    assert (
        all(decision(database, k.key, **UNDER).schedule.algorithm == XLA for k in result.kernels)
        is not wins
    )


def test_the_error_of_a_default_is_not_asked_for_where_candidates_are_as_exact_as_any(
    database: Database,
) -> None:
    asked = list[str]()

    class Noting(dict[str, float]):
        def __contains__(self, label: object) -> bool:
            asked.append(str(label))
            return False

    device = Telling()
    device.off_by = 1e-7
    result = run(database, TASKS, device, limits=SHORT, default_errors=Noting({"": 0.0}))
    assert len(result.won) == len(TASKS)
    assert len(asked) == 1, "that of the first kernel, which is opened"


def test_a_kernel_for_which_no_candidate_can_be_chosen_leaves_the_others_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(task: Task, model: CostModel, most: int = 1) -> list[Candidate]:
        if task.label == "k9":
            raise ScheduleError("no first candidate")
        return liked(task, model, most)

    monkeypatch.setattr("hlotune.search.finals.quick.liked", failing)
    result = run(database, TASKS, Telling(), limits=SHORT)
    assert {k.label for k in result.won} >= {t.label for t in TASKS} - {"k9"}


def test_the_model_chooses_among_the_first_candidates_of_all_algorithms() -> None:
    space = TASKS[0].space
    assert isinstance(space, ToySpace)
    (chosen,) = liked(TASKS[0], TrueModel(space))
    assert chosen.schedule == space.schedule(space.heuristic())
    assert len(liked(TASKS[0], Trees(), 5)) == 1


class SeveralFirsts(ToySpace):
    """Has the first candidates of four algorithms."""

    def firsts(self) -> Configs:
        return self.sample(4, np.random.default_rng(6))


def test_a_first_batch_begins_with_the_first_candidate_that_the_model_likes_best() -> None:
    space = SeveralFirsts((8, 8, 8))
    firsts, ordered = space.firsts(), firsts_by_liking(space, TrueModel(space))
    fastest = int(np.argmin(space.times_s(firsts)))
    assert fastest != 0
    assert ordered[0].tolist() == firsts[fastest].tolist()
    assert ordered[1:].tolist() == np.delete(firsts, fastest, axis=0).tolist()
    assert firsts_by_liking(space, Trees()).tolist() == firsts.tolist()


def test_kernels_that_xla_is_known_to_lag_behind_in_come_before_plain_ones_of_more_work() -> None:
    def convolved(groups: int, image: int = 8) -> Task:
        x, w = jnp.ones((1, image, image, 64)), jnp.ones((3, 3, 64 // groups, 64))
        names = ("NHWC", "HWIO", "NHWC")
        program = load(
            lambda x, w: jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=names, feature_group_count=groups
            ),
            x,
            w,
        )
        (found,), _ = tasks(sites(program), TARGETS["x86-64"])
        return found

    assert [convolved(groups).default_lag for groups in (1, 4, 64)] == [2.0, 8.0, 30.0]
    assert [convolved(1, image).default_lag for image in (3, 2)] == [2.0, 30.0]


Shape = tuple[int, ...]
ONE_AROUND = [(1, 1)] * 2


def lag(x: Shape, w: Shape, names: tuple[str, str, str], **more: Any) -> float:
    """How far XLA is expected to lag behind in a convolution."""

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), ONE_AROUND, dimension_numbers=names, **more
        )

    (found,), _ = tasks(sites(load(convolved, jnp.ones(x), jnp.ones(w))), TARGETS["x86-64"])
    return found.default_lag


def test_kernels_of_gradients_come_before_plain_ones_of_as_much_work() -> None:
    nhwc, of_weights = ("NHWC", "HWIO", "NHWC"), ("CHWN", "IHWO", "HWNC")
    assert lag((1, 8, 8, 64), (3, 3, 64, 64), nhwc) == 2.0
    assert lag((1, 8, 8, 64), (3, 3, 64, 64), nhwc, lhs_dilation=(2, 2)) == 2.0
    assert lag((1, 64, 8, 8), (3, 3, 64, 64), ("NCHW", "HWIO", "NCHW")) == 4.0
    assert lag((8, 28, 28, 32), (8, 28, 28, 64), of_weights) == 12.0
    assert lag((8, 14, 14, 32), (8, 14, 14, 64), of_weights) == 4.0
    assert lag((1, 28, 28, 32), (1, 28, 28, 64), of_weights) == 4.0, "of one image"


def test_what_lags_most_is_opened_first(database: Database) -> None:
    plain, grouped = TASKS[0], replace(TASKS[1], default_lag=30.0)
    events = list[Event]()
    run(database, (plain, grouped), Telling(), limits=SHORT, events=events)
    assert next(e.label for e in events if isinstance(e, KernelStarted)) == grouped.label


def test_seconds_that_quick_finals_leave_go_into_searching_and_later_champions_meet_the_earlier(
    database: Database,
) -> None:
    device, events = Telling(), list[Event]()
    result = run(database, COSTLY, device, limits=Limits(seconds=8.0), events=events)
    assert 8.0 - 1.5 < device.now() <= 8.0
    assert "k7" in {e.label for e in events if isinstance(e, Batch)}
    pairs = [pairs for label, pairs in device.met if label == "k7"]
    assert pairs[0] == FEWEST_PAIRS
    assert len(pairs) > 1
    (costliest,) = (k for k in result.kernels if k.label == "k7")
    first = TASKS[7].space.schedule(TASKS[7].space.heuristic())
    stands = decision(database, costliest.key, **UNDER).schedule
    assert stands == costliest.schedule != first
    assert [e.label for e in events if isinstance(e, KernelStarted)].count("k7") == 1


def test_trials_behind_quick_finals_are_spread_over_kernels_by_what_they_promise(
    database: Database,
) -> None:
    alike = tuple(replace(t, weight=5.0 if n < 4 else 0.5) for n, t in enumerate(TASKS))
    result = run(database, alike, Telling(), limits=Limits(seconds=9.0))
    more = {k.label: k.trials for k in result.kernels if k.trials > FIRST}
    assert {t.label for t in alike[:4]} <= more.keys()


@pytest.mark.parametrize("seconds", [7.0, 12.0])
def test_no_run_ends_long_before_its_budget_while_its_kernels_promise_something(
    seconds: float, database: Database
) -> None:
    device = Telling(failing="k3")
    run(database, TASKS, device, limits=Limits(seconds=seconds))
    assert seconds - 1.5 < device.now() <= 1.05 * seconds


class Unsure(Telling):
    """Proves nothing of a kernel when it is compared again."""

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        found = super().final(kernel, objects, pairs)
        if self.met.count(self.met[-1]) == 1:
            return found
        noise = Measurement(samples_s=(40e-3, 1e-6) * (pairs // 2) + (20e-3,))
        return Comparison(found.default, tuple(noise for _ in objects))


def test_a_later_final_that_proves_nothing_takes_no_proven_schedule_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reserve, "pairs", lambda *_, **__: FEWEST_PAIRS)
    device = Unsure()
    result = run(database, COSTLY, device, limits=Limits(seconds=8.0))
    twice = {k.label: k for k in result.kernels if device.met.count((k.label, FEWEST_PAIRS)) > 1}
    assert twice
    for kernel in twice.values():
        assert kernel.won
        assert decision(database, kernel.key, **UNDER).schedule == kernel.schedule


def test_what_was_searched_behind_a_quick_final_is_known_when_the_run_is_taken_up_again(
    database: Database,
) -> None:
    device, limits = Telling(), Limits(seconds=14.0)
    device.interrupt_at = 160
    stopped = run(database, TASKS, device, limits=limits)
    before = {k.label: k for k in stopped.kernels}
    assert stopped.interrupted
    assert any(k.trials > 1 and k.won for k in stopped.kernels)
    again = run(database, TASKS, Telling(), limits=limits, resume=stopped.run)
    for kernel in again.kernels:
        assert kernel.ratio >= before[kernel.label].ratio
        # The first candidate that was compared alone is a trial of that run, and of no batch.
        assert kernel.trials >= before[kernel.label].trials - 1

"""Models are trained on what a database holds, and judged by kernels they have not seen."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from hlotune.costmodel.files import read_arrays
from hlotune.costmodel.inputs import Inputs, Reads, as_summaries, taken
from hlotune.costmodel.model import MODELS
from hlotune.costmodel.ranking_quality import mean_quality, quality
from hlotune.costmodel.replay_pool import best_so_far, drawn
from hlotune.costmodel.training_budget import held_out_in_turn
from hlotune.costmodel.trees import Trees
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.trial import Candidate, Measurement, Trial
from hlotune.schedules.algorithms.joined_space import space_of as every_space_of
from hlotune.schedules.features.loop_trees import Nodes
from hlotune.schedules.spaces.cpu_contraction.space import space_of
from hlotune.search.learning.train_and_evaluate import (
    SAMPLE,
    cross_judged,
    judged,
    trained,
    training_of,
)
from hlotune.search.learning.training_rows import ARRAYS, FEWEST, Examples, examples, located
from hlotune.tuning_logs.database import Database
from tests.support.dot_records import (
    DRAWN,
    EXTENTS,
    RANDOM,
    TARGET,
    TOOLS,
    dot,
    examples_of,
    recorded,
    simulated,
)
from tests.support.winograd_cases import windowed


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("records") / "tuning.db")


@pytest.fixture(scope="module")
def of(path: Path) -> list[Examples]:
    return examples_of(path)


class TestExamples:
    def test_every_kernel_comes_with_its_trials(self, of: Sequence[Examples]) -> None:
        assert {e.key for e in of} == {dot(n).key for n in EXTENTS}
        for e in of:
            assert RANDOM - 5 < len(e.times_s) < RANDOM  # equal schedules are one
            assert len(e.features) == len(e.nodes.values) == len(e.times_s)

    def test_failures_teach_and_what_the_device_did_does_not(self, of: Sequence[Examples]) -> None:
        for e in of:
            assert np.isnan(e.times_s).sum() == 1
            assert e.scores[np.isnan(e.times_s)] == 0
            assert e.scores.max() == 1

    def test_features_are_those_of_the_recorded_target(self, of: Sequence[Examples]) -> None:
        kernel = dot(EXTENTS[0])
        space = space_of(compute_of(graph_of(kernel)), TARGET)
        (found,) = (e for e in of if e.key == kernel.key)
        configs = space.sample(RANDOM, np.random.default_rng(0))
        expected = {row.tobytes() for row in space.features(configs)}
        assert {row.tobytes() for row in as_summaries(found.inputs("summary"))} <= expected

    def test_schedules_of_every_algorithm_have_their_place(self, tmp_path: Path) -> None:
        """Those of fast numerics too; those of the standard's stay what they were without them."""
        case = windowed(size=(14, 14), channels=16, features=32)
        spaces = [every_space_of(case.compute, TARGET, n) for n in ("standard", "fast")]
        every = spaces[1].sample(80, np.random.default_rng(0))
        schedules = list({spaces[1].schedule(c): None for c in every})
        trials = [Trial(Candidate(case.kernel, s), Measurement(samples_s=(1e-3,)))
                  for s in schedules]  # fmt: skip
        with Database(tmp_path / "a.db") as database:
            database.add(database.start_run(None, TARGET, TOOLS), case.kernel, trials, batch=0)
            (found,) = examples(database)
        assert len(found.times_s) == len(schedules)
        configs, rows = located(spaces[0], [s.to_json() for s in schedules])
        assert 0 < len(configs) == len(rows) < len(schedules)
        among = {row.tobytes() for row in found.features}
        assert {row.tobytes() for row in spaces[0].features(configs)} < among

    def test_those_drawn_at_random_are_told_from_guided_ones(self, of: Sequence[Examples]) -> None:
        for e in of:
            drawn = e.at_random
            assert DRAWN - 5 < len(drawn.times_s) < DRAWN + 1
            assert drawn.drawn.all() and not e.drawn.all()
            assert len(drawn.features) == len(drawn.nodes.values) == len(drawn.times_s)
            np.testing.assert_array_equal(drawn.times_s, e.times_s[e.drawn])
            np.testing.assert_array_equal(drawn.features, e.features[e.drawn])

    def test_the_first_candidate_is_not_drawn_whoever_measured_it(self, tmp_path: Path) -> None:
        kernel = dot(EXTENTS[0])
        space = space_of(compute_of(graph_of(kernel)), TARGET)
        configs = [space.heuristic(), *space.sample(9, np.random.default_rng(0))]
        trials = [
            Trial(Candidate(kernel, space.schedule(c)), Measurement(samples_s=(1e-3 * (n + 1),)))
            for n, c in enumerate(configs)
        ]
        with Database(tmp_path / "a.db") as database:
            run = database.start_run(None, TARGET, TOOLS, options={"searcher": "random"})
            database.add(run, kernel, trials, batch=0)
            (found,) = examples(database)
        assert list(found.drawn) == [t > 1e-3 for t in found.times_s]

    def test_the_cache_gives_what_was_computed(self, path: Path, tmp_path: Path) -> None:
        with Database(path) as database:
            first, second = (list(examples(database, tmp_path / "cache")) for _ in range(2))
        assert len(list((tmp_path / "cache").iterdir())) == len(first) == len(EXTENTS)
        for a, b in zip(first, second, strict=True):
            assert (a.key, a.family, a.label) == (b.key, b.family, b.label)
            np.testing.assert_array_equal(a.features, b.features)
            np.testing.assert_array_equal(a.nodes.values, b.nodes.values)
            np.testing.assert_array_equal(a.times_s, b.times_s)
            np.testing.assert_array_equal(a.drawn, b.drawn)

    def test_damaged_files_of_the_cache_are_made_again(self, path: Path, tmp_path: Path) -> None:
        folder = tmp_path / "cache"
        with Database(path) as database:
            whole = list(examples(database, folder))
            for damage, file in enumerate(sorted(folder.iterdir())):
                data = (b"", b"rubbish", file.read_bytes()[: 100 * damage])[min(damage, 2)]
                file.write_bytes(data)
            again = list(examples(database, folder))
            for a, b in zip(whole, again, strict=True):
                np.testing.assert_array_equal(a.features, b.features)
        assert all(len(read_arrays(file) or {}) == len(ARRAYS) for file in folder.iterdir())

    def test_a_cache_that_cannot_be_written_is_done_without(
        self, path: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        with Database(path) as database:
            assert len(list(examples(database, tmp_path / "file" / "cache"))) == len(EXTENTS)

    def test_processes_that_fill_the_cache_at_once_do_not_meet(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save, folder = np.savez_compressed, tmp_path / "cache"

        def meanwhile(part: Path, **arrays: np.ndarray) -> None:
            """Another process fills the cache before this one's file has its name."""
            save(part, **arrays)  # type: ignore[arg-type]
            monkeypatch.setattr(np, "savez_compressed", save)
            with monkeypatch.context() as other, Database(path) as again:
                other.setattr(os, "getpid", lambda: 0)
                assert len(list(examples(again, folder))) == len(EXTENTS)

        monkeypatch.setattr(np, "savez_compressed", meanwhile)
        with Database(path) as database:
            assert len(list(examples(database, folder))) == len(EXTENTS)
        assert len(list(folder.iterdir())) == len(EXTENTS)

    def test_a_new_trial_is_not_hidden_by_the_cache(self, path: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())
        with Database(copy) as database:
            before = {e.key: e for e in examples(database, tmp_path / "cache")}
            run = database.start_run(None, TARGET, TOOLS)
            kernel = dot(EXTENTS[0])
            database.add(run, kernel, simulated(kernel, seed=77), batch=0)
            after = {e.key: e for e in examples(database, tmp_path / "cache")}
        assert len(after[kernel.key].times_s) > len(before[kernel.key].times_s) + 10


def test_a_model_is_judged_by_kernels_it_has_not_seen(of: Sequence[Examples]) -> None:
    lines = list(cross_judged("trees", of, "kernels", seed=0))
    assert lines
    for line in lines:
        assert line.trials == len(line.curve)
        assert line.curve[-1] == 1
        assert line.quality.pairwise_accuracy > 0.6


def test_a_model_is_judged_by_all_trials_and_by_those_drawn_at_random(
    of: Sequence[Examples],
) -> None:
    model = MODELS["roofline"]()
    for e in of:
        every, drawn = judged("roofline", model, e)
        assert (every.by, drawn.by) == ("all trials", "at random")
        assert (every.trials, drawn.trials) == (len(e.times_s), len(e.at_random.times_s))
        for judgement, shown in ((every, e), (drawn, e.at_random)):
            expected = quality(shown.scores, model.predict(shown.features))
            # A figure of too few trials is no number, and no number is equal to itself.
            assert asdict(judgement.quality) == pytest.approx(asdict(expected), abs=0, nan_ok=True)


def test_of_many_trials_a_model_is_judged_by_300_too(of: Sequence[Examples]) -> None:
    """Who looks among more finds fewer of the 30 best."""
    e, model = of[0], MODELS["roofline"]()
    many = np.resize(np.arange(len(e.times_s)), SAMPLE + 60)
    larger = replace(
        e,
        features=e.features[many],
        nodes=cast(Nodes, taken(e.nodes, many)),
        times_s=e.times_s[many],
        drawn=np.zeros(len(many), np.bool_),
    )
    every, sample = judged("roofline", model, larger)
    assert (every.by, sample.by) == ("all trials", "300 of all")
    assert (every.trials, sample.trials) == (SAMPLE + 60, SAMPLE)
    again = larger.sample(SAMPLE)
    assert sample.quality == quality(again.scores, model.predict(again.features))
    assert [x.by for x in judged("roofline", model, e)] == ["all trials", "at random"]


def test_few_trials_drawn_at_random_are_no_sample_to_judge_by(of: Sequence[Examples]) -> None:
    few = replace(of[0], drawn=np.arange(len(of[0].drawn)) < FEWEST - 1)
    assert [x.by for x in judged("roofline", MODELS["roofline"](), few)] == ["all trials"]


class Groups:
    """A model that remembers which groups it was taught by."""

    reads: Reads = "summary"

    def fit(self, inputs: Inputs, scores: np.ndarray, groups: np.ndarray) -> None:
        self.groups = groups


def test_a_kernels_trials_of_two_machines_are_held_out_together(
    of: Sequence[Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a model would be stopped by kernels that it learns from."""
    monkeypatch.setitem(MODELS, "groups", lambda effort: Groups())  # type: ignore[arg-type]
    on = [replace(e, machine=machine) for machine in ("one", "other") for e in of]
    groups = trained("groups", on).groups  # type: ignore[attr-defined]
    rows = np.cumsum([0, *(len(e.times_s) for e in on)])
    for held in held_out_in_turn(groups, "offline"):
        keys = [e.key for e, first in zip(on, rows, strict=False) if held[first]]
        assert keys and len(keys) == 2 * len(set(keys))


def test_the_analytic_model_beats_chance_on_the_simulated_device(of: Sequence[Examples]) -> None:
    model = MODELS["roofline"]()
    mean = mean_quality([quality(e.scores, model.predict(e.features)) for e in of])
    assert mean.spearman > 0.2


def test_what_a_model_has_seen_is_told(of: Sequence[Examples]) -> None:
    seen = training_of(of)
    assert seen.trials == sum(len(e.times_s) for e in of)
    assert len(seen.kernels) == len(EXTENTS) and len(seen.families) == 1


class TestPool:
    def test_a_model_that_learned_finds_the_best_sooner_than_the_order_of_the_pool(
        self, of: Sequence[Examples]
    ) -> None:
        taught = trained("trees", of[:5])
        scores = of[5].scores
        order = np.argsort(-taught.predict(of[5].features), kind="stable")
        in_order = best_so_far(scores, np.arange(len(scores)))
        assert best_so_far(scores, order)[4] > in_order[4] + 0.1

    def test_each_row_is_measured_once_and_learned_from(self, of: Sequence[Examples]) -> None:
        model = Trees()
        order = drawn(model, of[0].features, of[0].scores, batch=8)
        assert sorted(order) == list(range(len(of[0].scores)))
        np.testing.assert_array_equal(order[:8], np.arange(8))  # it knew nothing then
        assert model.knows

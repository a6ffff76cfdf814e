"""Models are trained on what a database holds, and judged by kernels they have not seen."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hlotune.cli.charts import line_chart
from hlotune.cli.main import run_command
from hlotune.cli.model import means, rows_per_s
from hlotune.costmodel.effort import held_out_in_turn
from hlotune.costmodel.files import header_of, read_arrays
from hlotune.costmodel.inputs import Inputs, Reads, as_summaries
from hlotune.costmodel.model import MODELS
from hlotune.costmodel.pool import best_so_far, drawn
from hlotune.costmodel.quality import mean_quality, quality
from hlotune.costmodel.trees import Trees
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.program import load
from hlotune.hlo.sites import sites
from hlotune.hlo.to_compute import compute_of
from hlotune.measure.simulated import SimulatedDevice
from hlotune.measure.targets import TARGETS
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.cpu import space_of
from hlotune.schedules.schedule import DEFAULT
from hlotune.schedules.spaces import space_of as every_space_of
from hlotune.schedules.target import Toolchain
from hlotune.search.examples import ARRAYS, FEWEST, Examples, examples, located
from hlotune.search.schooling import cross_judged, judged, trained, training_of
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.records import export_records
from tests.winograd_cases import windowed

TARGET = TARGETS["x86-64"]
TOOLS = Toolchain(jaxlib="0", llvm="0", codegen="0", xla_flags="")
EXTENTS = (24, 40, 56, 80, 96, 128)
RANDOM = 40
DRAWN = 24
"""Recorded under a random searcher, the others under one that guides."""


def dot(extent: int) -> Kernel:
    left, right = np.zeros((extent, 48), np.float32), np.zeros((48, 32), np.float32)
    return sites(load(lambda x, y: x @ y, left, right))[0].kernel


def simulated(kernel: Kernel, seed: int) -> list[Trial]:
    """The default and random schedules; of these one failed, and on one the device."""
    space, device = space_of(compute_of(graph_of(kernel)), TARGET), SimulatedDevice(TARGET)
    configs = space.sample(RANDOM, np.random.default_rng(seed))
    candidates = [Candidate(kernel, space.schedule(c)) for c in configs]
    objects = list(zip(candidates, device.build(candidates), strict=True))
    objects[3] = (candidates[3], Failure("wrong_result", "made up"))
    objects[4] = (candidates[4], Failure("device", "made up"))
    return [
        Trial(Candidate(kernel, DEFAULT), Measurement(samples_s=(1e-3,))),
        *device.measure(kernel, objects),
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a database with products of six sizes, timed on the simulated device."""
    file = tmp_path_factory.mktemp("records") / "tuning.db"
    with Database(file) as database:
        drawn = database.start_run(None, TARGET, TOOLS, options={"searcher": "random"})
        guided = database.start_run(None, TARGET, TOOLS, options={"searcher": "annealing"})
        for seed, extent in enumerate(EXTENTS):
            kernel = dot(extent)
            default, *trials = simulated(kernel, seed)
            database.add(drawn, kernel, [default, *trials[:DRAWN]], batch=0)
            database.add(guided, kernel, trials[DRAWN:], batch=0)
    return file


@pytest.fixture(scope="module")
def of(path: Path) -> list[Examples]:
    with Database(path) as database:
        return list(examples(database))


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
        spaces = [every_space_of(case.compute, TARGET, fast=fast) for fast in (False, True)]
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


def test_rows_a_second_are_those_of_all_kernels_together(of: Sequence[Examples]) -> None:
    line = next(cross_judged("random", of, "kernels", 0))
    rates = [(30, 10.0), (10, 10.0), (60, 30.0)]  # 3 s, 1 s, 2 s
    lines = [replace(line, trials=n, predict_rows_per_s=rate) for n, rate in rates]
    assert rows_per_s(lines) == pytest.approx(100 / 6)


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
        assert every.quality == quality(e.scores, model.predict(e.features))
        assert drawn.quality == quality(e.at_random.scores, model.predict(e.at_random.features))


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


class TestCommands:
    def test_a_trained_model_says_what_it_saw_and_can_be_judged_and_exported(
        self, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
    ) -> None:
        model = tmp_path / "m.npz"
        assert run_command(["model", "train", "--db", str(path), "-o", str(model)]) == 0
        assert "trees, trained on" in capsys.readouterr().out
        assert len(header_of(model).training.kernels) == len(EXTENTS)  # type: ignore[union-attr]
        out = tmp_path / "m.json"
        assert run_command(["model", "export", "--file", str(model), "-o", str(out)]) == 0
        assert "learner" in json.loads(out.read_text())
        assert run_command(["model", "eval", "--db", str(path), "--file", str(model)]) == 1
        assert "expected kernels that the model has not seen" in capsys.readouterr().err

    def test_records_in_json_lines_are_as_good_as_a_database(
        self, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
    ) -> None:
        lines = tmp_path / "records.jsonl.gz"
        with Database(path) as database:
            export_records(database, lines)
        told = []
        for source in (path, lines):
            out = tmp_path / f"{source.name}.npz"
            run_command(["model", "train", "--json", "--db", str(source), "-o", str(out)])
            told.append(json.loads(capsys.readouterr().out))
        assert told[0]["trials"] == told[1]["trials"] > 0
        assert told[0]["kernels"] == told[1]["kernels"]

    def test_eval_prints_figures_and_draws_them(
        self, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
    ) -> None:
        plot = tmp_path / "plot.svg"
        options = ["--model", "roofline", "--model", "random", "--seeds", "1", "--plot", str(plot)]
        assert run_command(["model", "eval", "--db", str(path), *options]) == 0
        printed = capsys.readouterr().out
        assert "pairs" in printed and "roofline" in printed and "random" in printed
        assert "roofline" in plot.read_text()
        assert run_command(["model", "eval", "--db", str(path), *options, "--json"]) == 0
        lines = json.loads(capsys.readouterr().out)
        assert {x["model"] for x in lines} == {"roofline", "random"}
        assert all(0 <= x["pairwise_accuracy"] <= 1 for x in lines)
        assert {x["by"] for x in lines} == {"all trials", "at random"}

    def test_eval_averages_neither_machines_nor_kinds_of_trials(
        self, of: Sequence[Examples]
    ) -> None:
        lines = [x for e in of for x in judged("roofline", MODELS["roofline"](), e)]
        lines += [replace(x, machine="another") for x in lines]
        sets = dict(means(lines))
        assert list(sets) == [
            ("roofline", machine, by)
            for machine in (of[0].machine, "another")
            for by in ("all trials", "at random")
        ]
        assert {cells[0] for cells in sets.values()} == {str(len(of))}

    def test_an_empty_database_teaches_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
    ) -> None:
        Database(tmp_path / "a.db").close()
        arguments = ["--db", str(tmp_path / "a.db"), "-o", str(tmp_path / "m.npz")]
        assert run_command(["model", "train", *arguments]) == 1
        assert "expected recorded trials" in capsys.readouterr().err

    def test_too_few_kernels_are_not_split(
        self, path: Path, capsys: pytest.CaptureFixture[str], cached: None
    ) -> None:
        assert run_command(["model", "eval", "--db", str(path), "--hold-out", "families"]) == 1
        assert "expected two families, to hold some families out, got" in capsys.readouterr().err

    def test_an_unknown_model_is_misuse(
        self, path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_command(["model", "eval", "--db", str(path), "--model", "oracle"]) == 2
        assert "got oracle" in " ".join(capsys.readouterr().err.split())

    def test_lines_that_are_no_records_are_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a.jsonl").write_text("nothing\n")
        arguments = ["--db", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "m.npz")]
        assert run_command(["model", "train", *arguments]) == 2
        assert "expected records in" in capsys.readouterr().err

    @pytest.fixture
    def cached(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The cache is one of the test."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_chart_is_an_svg_with_a_line_a_name() -> None:
    text = line_chart("a < b", "x", "y", {"one": [0.0, 1.0], "two": [0.5, 0.5, 1.0]})
    root = ElementTree.fromstring(text)
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert [len(e.attrib["points"].split()) for e in lines] == [2, 3]
    assert "a < b" in [e.text for e in root.iter()]

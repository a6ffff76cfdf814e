"""Predictions are recorded with their trials, exported, and held against what was measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import Evidence, evidence
from hlotune.tuning_logs.figures.model import model_figure
from hlotune.tuning_logs.page.model_quality import model_quality
from hlotune.tuning_logs.predictions import Batch, batches_of, quality, shares
from hlotune.tuning_logs.records import export_records, import_records
from tests.support.html_pages import Page
from tests.support.recorded import KERNEL, default_trial, failed, measured, start

TIMES_S = (1e-3, 2e-3, 4e-3, 3e-3)
RIGHT = (0.9, 0.5, 0.1, 0.3)
WRONG = (0.1, 0.3, 0.9, 0.5)


def recorded(path: Path, *batches: tuple[float, ...]) -> Evidence:
    """A run whose model gave these scores to candidates with the times above, and to one more that
    failed."""
    with Database(path) as database:
        run = start(database)
        database.add(run, KERNEL, [default_trial(2e-3)], batch=0)
        for number, scores in enumerate(batches):
            trials = [measured(t, 10 * number + k) for k, t in enumerate(TIMES_S, 1)]
            trials.append(failed(number=10 * number + 9))
            database.add(run, KERNEL, trials, batch=number + 1, predicted=(*scores, 1.0))
        return evidence(database, run)


def test_a_model_that_is_right_has_no_regret(tmp_path: Path) -> None:
    found = quality(recorded(tmp_path / "a.db", RIGHT).kernels[0])
    assert found is not None
    assert (found.trials, found.batches, found.regret) == (4, 1, 0.0)
    assert found.rank_correlation == pytest.approx(1)


def test_a_model_that_is_wrong_regrets_the_slowest(tmp_path: Path) -> None:
    found = quality(recorded(tmp_path / "a.db", WRONG, RIGHT).kernels[0])
    assert found is not None
    assert (found.trials, found.batches) == (8, 2)
    assert found.first == pytest.approx(-1)
    assert found.rank_correlation == pytest.approx(0)
    assert found.regret == pytest.approx(3 / 2)  # 4 ms in place of 1 ms, then none


def test_a_batch_with_few_measured_trials_says_nothing(tmp_path: Path) -> None:
    kernel = recorded(tmp_path / "a.db", RIGHT).kernels[0]
    fewer = replace(kernel, points=kernel.points[:4])
    assert list(batches_of(fewer)) == [] and quality(fewer) is None


def test_equal_values_share_their_rank() -> None:
    assert shares([3.0, 1.0, 1.0, 2.0]) == pytest.approx([1.0, 1 / 6, 1 / 6, 2 / 3])
    assert Batch(scores=(1.0,) * 4, times_s=TIMES_S).rank_correlation == 0


def test_the_report_says_how_good_the_predictions_were(tmp_path: Path) -> None:
    read = Page.of(model_quality(recorded(tmp_path / "a.db", WRONG, RIGHT), {}))
    assert "recorded with its trial" in read.words
    row = "".join(read.text).partition("regret")[2]
    assert "82-1.00+0.00150%" in row.replace(" ", "")
    assert "Predicted against measured rank of 8 trials" in read.named("div")[1].attributes.get(
        "aria-label", ""
    )


def test_a_run_without_predictions_says_so(tmp_path: Path) -> None:
    with Database(tmp_path / "old.db") as database:
        run = start(database)
        database.add(run, KERNEL, [measured(1e-3)], batch=0)
        found = evidence(database, run)
    assert model_figure(found, []) is None
    assert "recorded no predictions" in Page.of(model_quality(found, {})).words


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_export_and_import_carry_predictions(tmp_path: Path, ending: str) -> None:
    recorded(tmp_path / "a.db", RIGHT)
    file = tmp_path / f"records.{ending}"
    scores = "select predicted from trials order by number"
    with Database(tmp_path / "a.db") as first, Database(tmp_path / "b.db") as second:
        export_records(first, file)
        import_records(second, file)
        found = [[row["predicted"] for row in db.query(scores)] for db in (first, second)]
    assert found[0] == found[1] == [None, *RIGHT, 1.0]


def test_there_is_a_score_for_each_trial_or_none_at_all(tmp_path: Path) -> None:
    with Database(tmp_path / "a.db") as database:
        run = start(database)
        with pytest.raises(ValueError, match="zip"):
            database.add(run, KERNEL, [measured(1e-3)], batch=0, predicted=(0.5, 0.25))
        assert database.query("select * from trials") == []

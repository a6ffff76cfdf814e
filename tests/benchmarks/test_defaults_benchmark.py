"""What the benchmark of defaults makes of its samples; the fresh process is started once."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import defaults
from benchmarks.defaults import Line, Whole, fresh_kernel, kept, quiet, sums_table, table
from tests.support.recorded import KERNEL

FAST, SLOW = (1e-3,) * 10, (1e-3,) * 5 + (2e-3,) * 5


def line(worker: float, *, label: str = "dot", calls: float = 1.0) -> Line:
    """Two rounds: the worker's samples take so many milliseconds, in the second round 1."""
    return Line(
        program="mlp.py:model",
        label=label,
        calls=calls,
        worker=[(worker * 1e-3,) * 10, FAST],
        fresh=[FAST, SLOW],
        inside=[FAST, FAST],
        others_share=0.25,
    )


@pytest.mark.parametrize(("worker", "near"), [(1.09, 2), (0.92, 2), (1.2, 1), (0.8, 1)])
def test_a_round_is_near_where_both_processes_take_the_same_within_a_tenth(
    worker: float, near: int
) -> None:
    assert line(worker).near == near


def test_of_samples_in_two_modes_the_fast_one_counts_and_the_table_counts_them() -> None:
    found = line(1.0)
    assert found.ratios == pytest.approx([1.0, 1.0])
    (row,) = table([found]).rows
    assert row[-3:] == ["0", "1", "25%"]


def test_the_table_says_how_many_kernels_are_near_in_all_rounds() -> None:
    found = table([line(1.0), line(1.5)])
    assert found.rows[1][4:8] == ["1.25", "1.00 to 1.50", "1 of 2", "1.00"]
    assert "1 of 2 kernels; all rounds within it: 1, 3 of 4 rounds" in found.notes[2]


def test_the_rounds_of_the_fresh_process_show_how_far_processes_differ() -> None:
    found = dataclasses.replace(line(1.0), fresh=[FAST, (1.3e-3,) * 10])
    assert found.spread == pytest.approx(1.3)


def test_a_sum_counts_each_kernel_as_often_as_the_program_runs_it() -> None:
    rounds = [(4e-3,) * 10, (5e-3,) * 10]
    whole = Whole(program="mlp.py:model", rounds=rounds, others_share=None)
    (row,) = sums_table([line(1.0, calls=3), line(1.0, calls=2)], [whole]).rows
    assert row == ["mlp.py:model", "2", "5", "4.5", "1.12", "1.00 to 1.25", "5", "1.11", "-"]


def test_what_was_timed_beside_other_processes_is_timed_again() -> None:
    for shares, counts, times in (
        ([0.0], 0.0, 1), ([0.5, 0.01], 0.01, 2), ([0.5, 0.2, 0.3], 0.2, 3), ([None], None, 1),
    ):  # fmt: skip
        waiting = list[float | None](shares)
        assert quiet(partial(waiting.pop, 0), lambda share: share) == counts
        assert len(shares) - len(waiting) == times


def test_what_was_measured_is_kept_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "FOLDER", tmp_path / "defaults")
    of = [dataclasses.asdict(line(1.0)), dataclasses.asdict(line(2.0))]
    first = kept("dot", of.pop)
    assert kept("dot", of.pop) == first
    assert len(of) == 1
    assert Line(**first).near == json.loads(json.dumps(Line(**first).near)) == 1


def test_a_fresh_process_times_the_default() -> None:
    samples = fresh_kernel(KERNEL)
    assert len(samples) >= 15
    assert min(samples) > 0

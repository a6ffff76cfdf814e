"""Where the search of a kernel stops because hardly anything is left to gain."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.row_kernels import softmax
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.row_limit import least_seconds
from hlotune.schedules.targets.target import Properties
from hlotune.search.budget.stopping import floor_s, share_at_limit
from hlotune.search.progress import Event, KernelAtLimit
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from tests.support.computes import named
from tests.support.sessions import run, task

ZEN4 = TARGETS["znver4"]
PEAKS = Properties(flops_per_s={"f32": 1e11}, read_bytes_per_s=2e10, clock_hz=3.5e9)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "records.db") as opened:
        yield opened


def huge(of: Task) -> Task:
    """The task with tensors so large that reading them takes longer than any of its trials."""

    def larger(compute: Compute) -> Compute:
        tensors = tuple(replace(t, shape=(1 << 36,)) for t in compute.tensors)
        (stage,) = compute.stages
        axes = tuple(replace(a, extent=1 << 36) for a in stage.parallel)
        return Compute(tensors, (replace(stage, parallel=axes),))

    return replace(of, compute=larger(of.compute))


def test_a_kernel_at_its_limit_gets_no_more_batches_and_the_run_says_so(
    database: Database,
) -> None:
    events, near, far = list[Event](), huge(task("near", 1)), task("far", 2)
    result = run(database, [near, far], events=events)
    (stop,) = [e for e in events if isinstance(e, KernelAtLimit)]
    assert stop.label == "near" and stop.share >= 0.95
    found = {k.label: k for k in result.kernels}
    assert found["near"].trials < 96 == found["far"].trials
    assert found["near"].best_s is not None, "its best schedule meets the default"


def test_a_search_stops_at_95_percent_and_not_before() -> None:
    assert share_at_limit(1.0, 0.96) == 0.96
    assert share_at_limit(1.0, 0.94) is None


def test_arithmetic_is_a_floor_of_rows_alone_as_contractions_may_save_some() -> None:
    rows = softmax(64, 512)
    assert floor_s(rows, ZEN4, PEAKS) == least_seconds(rows, ZEN4, PEAKS)
    product = named("small gemm").compute
    slow = replace(PEAKS, flops_per_s={"f32": 1.0})
    assert floor_s(product, ZEN4, slow) == floor_s(product, ZEN4, PEAKS) < 1e-3


def test_without_peaks_or_a_target_there_is_no_floor() -> None:
    assert floor_s(softmax(4, 8), None, PEAKS) == 0
    assert floor_s(softmax(4, 8), ZEN4, replace(PEAKS, clock_hz=0.0)) == 0

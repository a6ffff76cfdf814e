"""Benchmarks of bandwidth and waking: what they run and say; nothing is timed."""

import numpy as np
import pytest

from benchmarks import bandwidth, waking
from hlotune.codegen.hosts import threaded
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.program import load
from hlotune.hlo.sites import sites
from hlotune.hlo.to_compute import compute_of
from hlotune.measure.targets import host_target
from hlotune.schedules.compute import Compute
from hlotune.schedules.replay import replay


def product(m: int, k: int, n: int) -> Compute:
    arguments = [np.ones((m, k), np.float32), np.ones((k, n), np.float32)]
    return compute_of(graph_of(sites(load(lambda x, w: x @ w, *arguments))[0].kernel))


def line(own_ms: list[float], read_ms: list[float]) -> bandwidth.Line:
    return bandwidth.Line(
        case="case", algorithm="direct", bytes=64_000_000,
        seconds=[t * 1e-3 for t in own_ms], read_seconds=[t * 1e-3 for t in read_ms],
    )  # fmt: skip


def test_the_share_is_that_of_the_read_in_the_same_turn() -> None:
    """Memory gave half as much in the last turn, to both."""
    assert line([1.0, 1.0, 2.0], [0.9, 0.9, 1.8]).share == pytest.approx(0.9)


def test_a_row_says_what_was_moved_in_what_time() -> None:
    row = bandwidth.cells(line([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]))
    assert row == ["case", "direct", "64.0", "1", "1 to 1", "64.0", "32.0", "200%"]
    assert len(row) == len(bandwidth.table([]).columns)


def test_the_kernel_and_the_read_run_on_buffers_of_the_right_size() -> None:
    compute, target = product(2, 64, 128), host_target()
    sources, host = bandwidth.buffers(compute), threaded(2)
    assert [s.data.nbytes for s in sources] == [t.bytes for t in compute.arguments]
    (first,) = bandwidth.firsts(compute, target)
    call = bandwidth.runs(compute, first, sources, target, host)
    times = bandwidth.in_turns(
        {"direct": call}, bandwidth.reading(1 << 16, target, host), seconds=1e-3
    )
    own, read = times["direct"]
    assert len(own) == len(read) >= 1


@pytest.mark.parametrize("name", bandwidth.CASES)
def test_every_case_is_mostly_memory(name: str) -> None:
    _, (left, right) = bandwidth.CASES[name]
    assert 4 * (np.prod(left) + np.prod(right)) > 1e7


def test_one_thread_and_all_run_the_same_tiles() -> None:
    compute, target = product(96, 96, 96), host_target()
    one, several = waking.schedules(compute, target)
    assert len(several.steps) == len(one.steps) + 1
    nests = [replay(compute, s, target) for s in (one, several)]
    assert len({tuple(n.stage("contract").loops) for n in nests}) == 1
    assert [any(x.kind == "parallel" for x in n.stage("out").loops) for n in nests] == [False, True]


def test_what_waking_saves_is_the_difference_of_medians() -> None:
    times = {"one": [9e-6, 4e-6, 5e-6], "all": [3e-6]}
    row = waking.cells(waking.Line(size=64, awake_s=times, asleep_s=times))
    assert row == ["64x64x64", "5.00", "3.00", "2.00", "5.0", "3.0", "2.0"]
    assert len(row) == len(waking.table([]).columns)

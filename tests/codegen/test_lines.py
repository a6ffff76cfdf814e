"""Cache lines of results: no two threads write in one, where the extents allow that.

Results begin at a line, and a loop's tasks are cut into one range a thread, as the hosts cut them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.codegen.llvm.buffers import Scratch
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.nest import LoopNest, StageNest
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget
from tests.support.computes import Case, batched, conv, depthwise, gemm, named, planes, tiled

Positions = NDArray[np.int64]

CASES: dict[str, Callable[[], Case]] = {
    "many rows": lambda: gemm(256, 256, 256),
    "few rows": lambda: gemm(8, 1024, 1024),
    "one row": lambda: gemm(1, 4096, 4096),
    "a batch": lambda: batched(16, 64, 64, 64),
    "an image": lambda: conv(64, 64, 64, 64),
    "a depthwise image": lambda: depthwise(64, 64, 64),
    "planes": lambda: planes(16, 16, 64, 64),
}
"""Kernels whose extents are powers of two."""


def threads_of(out: StageNest, at: dict[str, Positions], threads: int) -> Positions:
    """The thread that computes each point of a stage."""
    task, count = np.zeros((), np.int64), 1
    for loop, trips in zip(out.loops, out.trips(out.stage.extents), strict=True):
        if loop.kind == "parallel":
            task, count = task * trips + at[loop.root] // loop.step, count * trips
    ends = -(-count * np.arange(1, threads + 1) // threads)
    found: Positions = np.searchsorted(ends, task, side="right")
    return found


def shared_lines(nest: LoopNest) -> tuple[int, int]:
    """Lines of the result that two threads write in, and the threads that have work."""
    out, points = nest.stage("out"), nest.stage("out").stage.extents
    at: dict[str, Positions] = dict(zip(points, np.indices(tuple(points.values())), strict=True))
    (store,) = out.stage.stores
    result = nest.compute.tensor(store.tensor)
    index = [e.constant + sum(c * at[a] for a, c in e.terms) for e in store.index]
    owner = np.full(result.shape, -1)
    owner[tuple(index)] = threads_of(out, at, nest.target.threads)
    assert owner.min() == 0, "every element is written"
    line = LINE_BYTES // BYTES[result.dtype]
    lines = np.pad(owner.reshape(-1), (0, -owner.size % line), "edge").reshape(-1, line)
    return int((lines.min(axis=1) != lines.max(axis=1)).sum()), int(owner.max()) + 1


def first(case: Case, target: CpuTarget) -> LoopNest:
    space = case.space(target)
    return replay(case.compute, space.schedule(space.heuristic()), target)


@pytest.mark.parametrize("name", CASES)
def test_threads_of_the_first_candidate_write_in_lines_of_their_own(name: str) -> None:
    assert shared_lines(first(CASES[name](), TARGETS["znver4"])) == (0, 2)


def test_a_line_in_which_two_threads_write_is_counted() -> None:
    """Tasks of three vectors of half a line: the second begins inside a line of each row."""
    case, target = gemm(4, 48, 8), TARGETS["x86-64-v3"]
    numbers: dict[str, Any] = {"register": {"i0": 4}, "block": {"i1": 3}}
    assert shared_lines(replay(case.compute, tiled(case, target, **numbers), target)) == (4, 2)


@pytest.mark.parametrize("target", ["x86-64-v3", "znver4"])
@pytest.mark.parametrize("name", ["small gemm", "small conv"])
def test_scratch_of_a_call_and_of_each_thread_is_whole_lines(name: str, target: str) -> None:
    case = named(name)
    space = case.space(TARGETS[target])
    configs = space.sample(30, np.random.default_rng(0))
    found = [Scratch(replay(case.compute, space.schedule(c), TARGETS[target])) for c in configs]
    assert any(s.slot_bytes for s in found) and any(s.call_bytes for s in found)
    assert all(s.slot_bytes % LINE_BYTES == s.call_bytes % LINE_BYTES == 0 for s in found)

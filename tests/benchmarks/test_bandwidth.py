"""Benchmarks of bandwidth and waking: what they run and say; nothing is timed."""

import numpy as np
import pytest

from benchmarks import bandwidth, waking
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.hosts import threaded
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.references import References
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.ir.compute import Compute
from tests.support.faults import extents


def kernel(m: int, k: int, n: int) -> Kernel:
    arguments = [np.ones((m, k), np.float32), np.ones((k, n), np.float32)]
    return sites(load(lambda x, w: x @ w, *arguments))[0].kernel


def product(m: int, k: int, n: int) -> Compute:
    return compute_of(graph_of(kernel(m, k, n)))


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
    call = bandwidth.runs(compute, build(compute, first, target), sources, host)
    times = bandwidth.in_turns(
        {"direct": call}, bandwidth.reading(1 << 16, target, host), seconds=1e-3
    )
    own, read = times["direct"]
    assert len(own) == len(read) >= 1


def test_there_are_turns_enough_for_quartiles_however_short_the_time() -> None:
    times = bandwidth.in_turns({"direct": lambda: None}, lambda: None, seconds=0.0)
    own, read = times["direct"]
    assert len(bandwidth.cells(line(own, read))) == 8


def test_a_turn_on_one_core_is_taken_again() -> None:
    answers = iter([True, False, True, True])
    calls, reads = list[int](), list[int]()
    bandwidth.turn(lambda: calls.append(1), lambda: reads.append(1), lambda: next(answers))
    assert len(calls) == len(reads) == 2 * bandwidth.CALLS


def test_a_kernel_that_is_wrong_is_not_timed() -> None:
    """It reads one column too few."""
    references, target = References(kernel(2, 64, 128)), host_target()
    (first,) = bandwidth.firsts(product(2, 64, 128), target)
    bandwidth.checked(references, build(product(2, 64, 128), first, target))
    wrong = build(extents(product(2, 64, 128), {"r0": 63}), first, target)
    with pytest.raises(WrongResult, match="expected direct to be right, got: result 0"):
        bandwidth.checked(references, wrong)


def test_a_kernel_that_gives_up_is_not_timed() -> None:
    compute, target = product(2, 64, 128), host_target()
    text = "define i32 @kernel(ptr %call) {\n  ret i32 3\n}\n"
    built = Built(compile_object(text, target, "fails"), 0, (), 0, 1)
    call = bandwidth.runs(compute, built, bandwidth.buffers(compute), threaded(2))
    with pytest.raises(WrongResult, match="expected status 0, got 3"):
        call()


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
    row = waking.cells(waking.Line(size=64, awake_s=times, asleep_s=times, empty_s=[1e-6]))
    assert row == ["64x64x64", "5.00", "3.00", "2.00", "5.0", "3.0", "2.0"]
    assert len(row) == len(waking.table([]).columns)


def test_each_size_is_called_awake_and_asleep_with_nothing_beside_it() -> None:
    call = waking.empty(host_target())
    (found,) = waking.measured({64: {"one": call, "all": call}}, call, seconds=0.0)
    times = [*found.awake_s.values(), *found.asleep_s.values(), found.empty_s]
    assert [len(t) for t in times] == [1] * 5
    (note,) = waking.table([found]).notes
    assert f"{found.empty_s[0] * 1e6:.2f} us awake" in note

"""What the device does around a timed call: the default, cold constants, memory of results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.codegen.runtime.dispatcher import bind_empty, crew_rests
from hlotune.hlo.graph import TensorType
from hlotune.measure.machine.run_queue import RunQueue
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing import bench, held_threads, retaken
from hlotune.measure.timing.bench import Bench
from hlotune.measure.timing.cold_operands import Arena, copies, ring_bytes
from hlotune.measure.timing.xla import baked_text, compiled, default_text, on_device
from hlotune.measure.verification.buffers import rounded
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.pages import in_large_pages, needs_moves, small_pages
from tests.support.tiny_dot import kernel, tiny_dot

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("constant_bytes", "number"),
    [(0, 1), (MEGABYTE, 64), (63 * MEGABYTE, 2), (64 * MEGABYTE, 1), (300 * MEGABYTE, 1), (8, 256)],
)
def test_copies_fill_a_ring(constant_bytes: int, number: int) -> None:
    assert copies(constant_bytes, 64 * MEGABYTE) == number


@pytest.mark.parametrize(
    ("threads", "l3", "ring"),
    [(2, 32, 64), (2, 128, 256), (2, 255, 256), (2, 256, 64), (2, 480, 64), (32, 480, 128),
     (96, 480, 256)],
)  # fmt: skip
def test_a_ring_is_no_longer_than_it_takes_to_leave_a_cache(
    threads: int, l3: int, ring: int
) -> None:
    """The last one; those of all threads below it where that one would keep any ring."""
    target = replace(host_target(), threads=threads, l2_bytes=2 * MEGABYTE, l3_bytes=l3 * MEGABYTE)
    assert ring_bytes(target) == ring * MEGABYTE


def test_a_ring_gives_copies_in_turn_at_places_of_their_own() -> None:
    weights = np.arange(50, dtype=np.float32).reshape(5, 10)
    ring = Arena().ring([weights], 3)
    turns = [next(ring)[0] for _ in range(4)]
    places = [t.unsafe_buffer_pointer() for t in turns]
    assert len(set(places)) == 3
    assert places[3] == places[0]
    assert all(p % 64 == 0 for p in places)
    assert all(np.array_equal(t, weights) for t in turns)


def test_copies_of_a_ring_lie_one_behind_the_other_in_its_own_memory() -> None:
    arena, weights = Arena(), np.arange(32, dtype=np.float32)
    ring = arena.ring([weights, weights[:16]], 256)
    turns = [next(ring) for _ in range(256)]
    start = arena._memory.ctypes.data
    places = [x.unsafe_buffer_pointer() - start for turn in turns for x in turn]
    assert places == [place for turn in range(256) for place in (192 * turn, 192 * turn + 128)]
    assert next(ring)[0] is turns[0][0]


def test_the_default_with_its_constants_in_its_text_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[str] = []

    def noted(text: str) -> Any:
        texts.append(text)
        return compiled(text)

    monkeypatch.setattr(bench, "compiled", noted)
    found = Bench(kernel(), host_target(), "warm")
    for _ in range(2):
        assert len(found.default()) == 2
    assert sum("stablehlo.constant" in text for text in texts) == 1


def test_a_ring_of_nothing_gives_nothing() -> None:
    assert next(Arena().ring([], 1)) == []


def test_a_ring_grows_and_its_last_copy_is_whole() -> None:
    weights = np.arange(MEGABYTE, dtype=np.float32)
    ring = Arena().ring([weights, weights], 3)
    assert all(np.array_equal(t, weights) for _ in range(3) for t in next(ring))


def test_both_forms_of_the_default_give_the_same_results() -> None:
    found = Bench(kernel(), host_target(), "warm")
    x, w = (on_device(v) for v in found.values)
    (plain,) = compiled(default_text(found.kernel))([x, w])
    (baked,) = compiled(baked_text(found.kernel, found.graph, found.values))([x])
    np.testing.assert_allclose(plain, baked, rtol=1e-5, atol=1e-6)
    assert len(found.default()) == 2


@pytest.mark.parametrize("cache", ["warm", "model"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_candidate_is_called_on_the_values_of_the_bench(cache: str, packed: bool) -> None:
    found = Bench(kernel(), host_target(), cache)  # type: ignore[arg-type]
    subject = found.candidate(tiny_dot(packed=packed))
    assert subject.call() > 0
    (result,) = found.last
    x, w = (np.asarray(v, dtype=np.float64) for v in found.values)
    np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-5)


def test_the_empty_call_leaves_results_alone_and_the_next_call_does_not() -> None:
    found = Bench(kernel(), host_target(), "warm")
    subject = found.candidate(tiny_dot())
    subject.empty()
    subject.call()
    assert np.isfinite(np.asarray(found.last[0])).all()


@needs_moves
@pytest.mark.parametrize("packed", [None, False, True])
def test_large_arguments_lie_in_large_pages_before_anything_is_timed(packed: bool | None) -> None:
    """The default's, which are the candidates' too, whoever is made first."""
    rows = 299_594
    found = Bench(kernel(rows), host_target(), "warm")
    memory = small_pages(28 * rows)
    found._arrays[0] = on_device(memory.view(np.float32).reshape(rows, 7))
    place = found._arrays[0].unsafe_buffer_pointer(), 8 * MEGABYTE
    assert place[0] == memory.ctypes.data
    assert in_large_pages(*place) == 0
    if packed is None:
        found.default(baked=False)
    else:
        found.candidate(tiny_dot(rows=rows, packed=packed))
    assert in_large_pages(*place) == 8 * MEGABYTE


def test_calls_that_are_timed_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form has had its early calls when its first subject is there, and no other makes any."""
    bound, empty = list[bool](), bind_empty

    def noted(key: str, *, moves: bool = False) -> None:
        bound.append(moves)
        empty(key, moves=moves)

    monkeypatch.setattr(bench, "bind_empty", noted)
    found = Bench(kernel(), host_target(), "warm")
    subjects = (*found.default(), found.candidate(tiny_dot()), found.candidate(tiny_dot()))
    assert bound.count(True) == 2  # without scratch and with it
    bound.clear()
    for subject in subjects:
        subject.call()
        subject.empty()
    assert bound == [False] * len(subjects)


@pytest.mark.parametrize(("scratch", "size"), [(0, 0), (1, 4096), (4097, 8192), (8192, 8192)])
def test_scratch_comes_in_powers_of_two(scratch: int, size: int) -> None:
    assert bench.size_class(scratch) == size


def test_wide_types_stay_wide_on_the_device() -> None:
    assert on_device(np.arange(3, dtype=np.float64)).dtype == np.float64
    assert on_device(np.arange(3, dtype=np.int64)).dtype == np.int64


@pytest.mark.parametrize("packed", [False, True])
def test_kernels_in_turns_keep_their_own_constants(packed: bool) -> None:
    first = Bench(kernel(), host_target(), "model")
    second = Bench(kernel(11), host_target(), "model")
    second.values = (second.values[0], 3 * np.asarray(second.values[1]))
    a, b = first.candidate(tiny_dot(packed=packed)), first.default()[0]
    others = second.candidate(tiny_dot(rows=11, packed=packed)), second.default()[0]
    for subject in (a, b, *others, a, b):
        subject.call()
    x, w = (np.asarray(v, dtype=np.float64) for v in first.values)
    for subject in (a, b):
        subject.call()
        np.testing.assert_allclose(first.last[0], x @ w, rtol=1e-4, atol=1e-5)


def test_empty_calls_use_up_no_turn_of_the_ring() -> None:
    found = Bench(kernel(), host_target(), "model")
    seen: list[int] = []

    def spy(arguments: Sequence[jax.Array]) -> list[jax.Array]:
        seen.append(arguments[1].unsafe_buffer_pointer())
        return []

    key, _ = found._program((0, ()))
    operands = found._cold((1,), [found.values[1]], "spied")
    empty = found._empty(key, spy, next(operands))
    call = found._clock(spy, operands, lambda: None)
    for clock in (call, empty, empty, empty, call):
        clock()
    first, *idle, second = seen
    assert idle == [first] * 3
    assert second == first + rounded(found.values[1].nbytes)


def test_as_much_is_read_before_baked_constants_as_a_ring_has_in_other_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def reader(operands: Sequence[tuple[TensorType, int]], target: CpuTarget) -> Callable[..., Any]:
        sizes.extend(t.bytes for t, _ in operands)
        return lambda arguments: []

    monkeypatch.setattr(bench, "_reader", reader)
    cache = 32 << 20  # in one of 480 MB a constant of a KB is nothing
    target = replace(host_target(), l3_bytes=cache)
    found = Bench(kernel(), target, "model")
    sizes.clear()
    for constant_bytes in (1 << 10, cache // 8, cache, 2 * cache):
        found._flood(constant_bytes)
    assert sizes == [255 << 10, 15 * cache // 8, cache]
    Bench(kernel(), target, "warm")._flood(cache)
    assert len(sizes) == 3


def test_operands_that_are_no_constants_are_warm_for_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retaken, "TRIES", 1)  # other processes may be at work
    monkeypatch.setattr(held_threads, "TRIES", 1)  # whoever else is at work
    found = Bench(kernel(), host_target(), "model")
    read: list[list[int]] = []
    between = found._between
    assert between is not None

    def spy(arguments: Sequence[jax.Array]) -> list[jax.Array]:
        read.append([a.unsafe_buffer_pointer() for a in arguments])
        return between(arguments)

    found._between = spy
    subjects = (*found.default(), found.candidate(tiny_dot(packed=True)))
    for subject in (*subjects, *subjects):
        subject.call()
    (x,) = found._warm
    assert len(read) == 5  # before the very first call there are no results
    assert {line[-1] for line in read} == {x.unsafe_buffer_pointer()}


def test_the_default_starts_while_our_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asleep = Bench(kernel(), host_target(), "model"), list[bool]()
    begin = RunQueue.begin

    def spy(queue: RunQueue) -> None:
        asleep.append(crew_rests())
        begin(queue)

    monkeypatch.setattr(RunQueue, "begin", spy)
    monkeypatch.setattr(bench, "_LONGEST_REST_S", 1.0)  # whoever else is at work
    monkeypatch.setattr(retaken, "MOST_LOST", float("inf"))
    for subject in (found.default("kernel")[0], found.default("call")[0]):
        for _ in range(3):
            subject.call()
    assert asleep == [True] * 6


def test_by_the_clock_of_calls_both_sides_are_called_before_the_call_that_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ups = list[str]()

    def spy(call: Callable[[], object]) -> bool:
        ups.append("up")
        call()
        return True

    monkeypatch.setattr(retaken, "run_up", spy)
    monkeypatch.setattr(retaken, "MOST_LOST", float("inf"))
    found = Bench(kernel(), host_target(), "model")
    for subject in (*found.default("kernel"), found.candidate(tiny_dot())):
        subject.call()
    assert ups == []
    for subject in (*found.default("call"), found.candidate(tiny_dot(packed=True), clock="call")):
        subject.call()
    assert ups == ["up"] * 3
    (result,) = found.last
    x, w = (np.asarray(v, dtype=np.float64) for v in found.values)
    np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-5)

"""What the device does around a timed call: the default, cold constants, memory of results."""

import numpy as np
import pytest

from hlotune.measure import bench
from hlotune.measure.bench import Bench
from hlotune.measure.rotation import Arena, copies
from hlotune.measure.targets import host_target
from hlotune.measure.xla import baked_text, compiled, default_text, on_device
from tests.tiny_dot import kernel, tiny_dot

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("constant_bytes", "number"),
    [(0, 1), (MEGABYTE, 64), (63 * MEGABYTE, 2), (64 * MEGABYTE, 1), (300 * MEGABYTE, 1), (8, 256)],
)
def test_copies_fill_twice_the_last_cache(constant_bytes: int, number: int) -> None:
    assert copies(constant_bytes, 32 * MEGABYTE) == number


def test_a_ring_gives_copies_in_turn_at_places_of_their_own() -> None:
    weights = np.arange(50, dtype=np.float32).reshape(5, 10)
    ring = Arena().ring([weights], 3)
    turns = [next(ring)[0] for _ in range(4)]
    places = [t.unsafe_buffer_pointer() for t in turns]
    assert len(set(places)) == 3
    assert places[3] == places[0]
    assert all(p % 64 == 0 for p in places)
    assert all(np.array_equal(t, weights) for t in turns)


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


@pytest.mark.parametrize(("scratch", "size"), [(0, 0), (1, 4096), (4097, 8192), (8192, 8192)])
def test_scratch_comes_in_powers_of_two(scratch: int, size: int) -> None:
    assert bench.size_class(scratch) == size


def test_wide_types_stay_wide_on_the_device() -> None:
    assert on_device(np.arange(3, dtype=np.float64)).dtype == np.float64
    assert on_device(np.arange(3, dtype=np.int64)).dtype == np.int64


def test_the_probe_takes_time() -> None:
    assert 1e-7 < min(bench.probe(host_target())() for _ in range(3)) < 1.0

"""Remainders of floats are exact, on vectors where their quotients are known to the last unit."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.codegen.llvm.compile import assembly
from tests.support.elementwise import Elementwise, Operation, level

PAIRS = 40_000
TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
REMAINDERS = {dtype: Operation("remainder", (dtype, dtype), dtype) for dtype in TYPES}


@cache
def machine(isa: str, lanes: int) -> Elementwise:
    return Elementwise(list(REMAINDERS.values()), isa, lanes)


def check(dtype: str, lanes: int, x: NDArray[np.floating], y: NDArray[np.floating]) -> None:
    """The bits of the C library's, for numbers and for zeros with their signs."""
    got = machine("x86-64-v3", lanes)(REMAINDERS[dtype], x, y)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


def of_all_sizes(dtype: str, seed: int) -> NDArray[np.floating]:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2 ** (8 * TYPES[dtype]().itemsize - 1), PAIRS, dtype=np.int64)
    held = bits.astype(f"i{TYPES[dtype]().itemsize}").view(TYPES[dtype])
    signed: NDArray[np.floating] = np.where(rng.random(PAIRS) < 0.5, held, -held)
    return signed


@pytest.mark.parametrize("lanes", [3, 8, 16, 24])
@pytest.mark.parametrize("dtype", TYPES)
def test_remainders_of_any_two_numbers_are_exact(dtype: str, lanes: int) -> None:
    check(dtype, lanes, of_all_sizes(dtype, 0), of_all_sizes(dtype, 1))


@pytest.mark.parametrize("dtype", TYPES)
def test_remainders_of_near_numbers_are_exact(dtype: str) -> None:
    """Quotients up to the largest whose whole part is known, a vector of them at a time."""
    rng = np.random.default_rng(2)
    most = np.finfo(TYPES[dtype]).nmant - 1
    y = rng.uniform(0.5, 1, PAIRS).astype(TYPES[dtype])
    x = (y * 2.0 ** rng.uniform(-3, most, PAIRS) * rng.choice([-1, 1], PAIRS)).astype(TYPES[dtype])
    check(dtype, 16, x, y)


@pytest.mark.parametrize("dtype", TYPES)
def test_multiples_and_their_neighbours_have_exact_remainders(dtype: str) -> None:
    rng = np.random.default_rng(3)
    y = rng.uniform(-4, 4, PAIRS).astype(TYPES[dtype])
    x = (y * rng.integers(-1000, 1000, PAIRS)).astype(TYPES[dtype])
    for moved in (x, np.nextafter(x, TYPES[dtype](np.inf)), np.nextafter(x, TYPES[dtype](0))):
        check(dtype, 16, moved, y)


@pytest.mark.parametrize("dtype", TYPES)
def test_remainders_of_subnormal_infinite_and_no_numbers(dtype: str) -> None:
    tiny = np.finfo(TYPES[dtype]).smallest_subnormal
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3 * tiny, -7 * tiny, 2 * tiny, 5.5, -2.5],
        TYPES[dtype],
    )
    x, y = (g.ravel() for g in np.meshgrid(edges, edges))
    check(dtype, 8, x, y)


def test_a_remainder_without_a_fused_multiply_add_is_the_c_librarys() -> None:
    assert "fmod" in assembly(machine("x86-64", 4).text, level("x86-64"))

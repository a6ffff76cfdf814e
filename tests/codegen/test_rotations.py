"""Two shifts of one integer are a rotation, and one instruction."""

import jax
import numpy as np
import pytest

from hlotune.codegen.llvm.idioms.rotations import rotation
from hlotune.hlo.frontends.program import load
from hlotune.schedules.ir.expr import Apply, Const, Expr, Load
from tests.support.whole_kernels import wrong_results

X = Load("x", (), "ui32")


def shifts(left: Expr, right: Expr, of: Expr = X) -> Apply:
    up = Apply("shift_left", (X, left), "ui32")
    return Apply("or", (up, Apply("shift_right_logical", (of, right), "ui32")), "ui32")


def count(n: int) -> Const:
    return Const(n, "ui32")


def test_counts_that_make_up_all_bits_turn_them() -> None:
    assert rotation(shifts(count(13), count(19))) == (X, 13)
    rest = Apply("subtract", (count(32), count(13)), "ui32")
    assert rotation(shifts(count(13), rest)) == (X, 13)


@pytest.mark.parametrize("other", [
    shifts(count(13), count(18)), shifts(count(0), count(32)), shifts(count(13), X),
    shifts(count(13), count(19), Load("y", (), "ui32")), shifts(count(13), count(19)).args[0],
])  # fmt: skip
def test_other_shifts_are_none(other: Expr) -> None:
    assert rotation(other) is None


def test_rotations_are_right() -> None:
    def turned(x: jax.Array, y: jax.Array) -> jax.Array:
        return (x << 7 | x >> 25) + (y << 31 | y >> 1)

    x = np.arange(1000, dtype=np.uint32) * np.uint32(4_000_037)
    assert wrong_results(load(turned, x, x[::-1].copy()), np.random.default_rng(0)) == []

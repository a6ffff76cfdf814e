"""Distances between what consecutive steps load, and the first candidates that ask for them."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.distances import nearest_bytes
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case, conv, whole


def row_scaled() -> Case:
    """A norm's factor for each row, fused into the product that follows."""
    arguments = whole(256, 32), whole(256, 1), whole(32, 8)
    return Case("row-scaled", lambda x, s, w: (x * s) @ w, arguments)


def scaled_query() -> Case:
    """One step of a decoder: each head's query with its cache of keys."""
    arguments = whole(2, 16), whole(2, 64, 16)
    return Case("query", lambda q, k: jnp.einsum("hd,hsd->hs", q * 0.125, k), arguments)


def column_scaled() -> Case:
    arguments = whole(64, 32), whole(32, 48), whole(48)
    return Case("column-scaled", lambda x, w, s: x @ (w * s), arguments)


def with_tiny_caches(target: CpuTarget) -> CpuTarget:
    """Even small operands come from memory, so every rule for large ones is asked."""
    return replace(target, l1_bytes=2048, l2_bytes=8192, l3_bytes=16384)


@pytest.mark.parametrize("case", [row_scaled(), scaled_query(), column_scaled()], ids=repr)
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_an_operand_that_no_step_moves_has_first_candidates(case: Case, target: CpuTarget) -> None:
    for there in (target, with_tiny_caches(target)):
        space = space_of(case.compute, there)
        firsts = space.firsts()
        assert space.legal(firsts).all()
        for config in firsts:
            replay(case.compute, space.schedule(config), there)


def test_the_distance_of_steps_is_along_the_nearest_axis_that_moves_the_load() -> None:
    """Two reductions of a window: the image has channels nearest, weights features between."""
    c = contraction(conv(6, 6, 16, 8, window=3).compute)
    outer, inner = c.reduce[0], c.reduce[-1]
    image, weights = c.operands
    assert c.step_bytes(image) == c.step_bytes(image, [inner]) == 4
    assert c.step_bytes(image, [outer]) == 6 * 16 * 4
    assert c.step_bytes(weights) == c.step_bytes(weights, [inner]) == 8 * 4
    assert c.step_bytes(weights, []) == 0


def test_a_load_that_no_step_moves_has_no_distance() -> None:
    case = row_scaled()
    c = contraction(case.compute)
    assert {x.tensor: c.step_bytes(x) for x in c.operands} == {"a0": 4, "a1": 0, "a2": 8 * 4}
    assert nearest_bytes(case.compute, c.operands[1], ["i0", "r0"]) == 4

"""Contractions of few products whose results are stored past the caches."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import NonTemporal

ZEN4 = TARGETS["znver4"]


def site(images: int, channels: int, length: int, taps: int = 5) -> Site:
    """A window along rows, each channel with weights of its own."""

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        numbers = "NCW", "OIW", "NCW"
        return jax.lax.conv_general_dilated(
            x, w, (1,), "SAME", dimension_numbers=numbers, feature_group_count=channels
        )

    x, w = ((images, channels, length), (channels, 1, taps))
    given: list[Any] = [jax.ShapeDtypeStruct(n, jnp.float32) for n in (x, w)]  # type: ignore[no-untyped-call]
    return sites(load(convolved, *given))[0]


def first(found: Site) -> Schedule:
    space = space_of(compute_of(graph_of(found.kernel)), ZEN4)
    return space.schedule(space.firsts()[0])


def passes(found: Site) -> bool:
    return any(isinstance(s, NonTemporal) for s in first(found).steps)


def test_windows_of_few_products_pass_the_caches_where_these_have_no_room() -> None:
    large = site(32, 64, 8192)
    assert passes(large)
    assert not passes(site(4, 64, 8192))
    assert not passes(site(32, 64, 8192, taps=33))
    text = emit(replay(compute_of(graph_of(large.kernel)), first(large), ZEN4)).text
    assert text.count("!nontemporal") > 1 and "sfence" in text


def test_every_schedule_of_such_a_window_is_located_where_it_came_from() -> None:
    space = space_of(compute_of(graph_of(site(32, 64, 8192).kernel)), ZEN4)
    for config in space.sample(10, np.random.default_rng(0)):
        made = space.schedule(config)
        found = space.locate(made)
        assert found is not None
        assert space.schedule(found) == made


@pytest.mark.parametrize("length", [64, 70])
def test_windows_that_pass_the_caches_agree_with_the_oracle(length: int) -> None:
    found = site(2, 3, length)
    compute, target = compute_of(graph_of(found.kernel)), host_target()
    space = space_of(compute, target)
    made = space.schedule(space.firsts()[0])
    further = replace(made, steps=(*made.steps, NonTemporal(compute.stages[-1].name)))
    verdict = verify(found.kernel, build(compute, further, target))
    assert isinstance(verdict, Verdict), verdict

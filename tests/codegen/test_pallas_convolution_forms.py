"""Convolutions as programs have them, recognised as kernels of GPUs and interpreted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.deploy.replacement import assembled, built_here, replacement
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.spaces.gpu.searched import SearchedSpace
from hlotune.search.tasks import tasks
from tests.support import interpreted_gpu
from tests.support.interpreted_gpu import INTERPRETED


def convolved(x: jax.Array, w: jax.Array, **more: Any) -> jax.Array:
    given = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), **more}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **given)


def dilated(x: jax.Array, w: jax.Array) -> jax.Array:
    return convolved(x, w, rhs_dilation=(2, 2))


def in_groups(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.maximum(convolved(x, w, feature_group_count=2) + b, 0.0)


def of_every_second_position(x: jax.Array, w: jax.Array) -> jax.Array:
    return convolved(x, w, window_strides=(2, 2), padding="VALID")


def depthwise(x: jax.Array, w: jax.Array) -> jax.Array:
    return convolved(x, w, feature_group_count=x.shape[-1])


def with_a_bias(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return convolved(x, w, window_strides=(2, 2)) + b


Case = tuple[Callable[..., jax.Array], str, tuple[tuple[int, ...], ...]]
CASES: tuple[Case, ...] = (
    (dilated, "triton_convolution", ((2, 9, 9, 32), (3, 3, 32, 24))),
    (in_groups, "triton_convolution", ((2, 9, 9, 32), (3, 3, 16, 24), (24,))),
    (of_every_second_position, "triton_product", ((2, 8, 8, 32), (1, 1, 32, 24))),
    (depthwise, "triton_stages", ((2, 9, 9, 32), (3, 3, 1, 32))),
    (with_a_bias, "triton_convolution", ((2, 9, 9, 32), (3, 3, 32, 24), (24,))),
)


NAMES = [function.__name__ for function, *_ in CASES]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)


@pytest.mark.parametrize(
    ("function", "sketch", "shapes"), CASES, ids=[f.__name__ for f, *_ in CASES]
)
def test_a_convolution_of_a_program_has_a_kernel_that_computes_the_same(
    function: Callable[..., jax.Array], sketch: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    program = load(function, *values)
    (task,), _ = tasks(sites(program), INTERPRETED)
    assert isinstance(task.space, SearchedSpace)
    assert [s.name for s in task.space.sketches] == [sketch]
    site = next(s for s in sites(program) if s.kernel == task.kernel)
    built = built_here(task.kernel, task.space.schedule(task.space.heuristic()), INTERPRETED)
    made = assembled(program, [replacement(program, site, built)], INTERPRETED)(*values)
    np.testing.assert_allclose(made, function(*values), rtol=1e-4, atol=1e-4)

"""What is made of sums beyond a bias, in kernels of products and convolutions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.replacement import assembled, built_here, replacement
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.patterns.gpu import GpuConvolution, GpuProduct
from hlotune.schedules.patterns.gpu_forms import gpu_form
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.spaces.tpu.space import tpu_space
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.tpu import tpu_target
from hlotune.search.tasks import tasks
from tests.codegen.test_pallas_convolution_forms import convolved
from tests.support import interpreted_gpu
from tests.support.gpu_programs import f32
from tests.support.interpreted_gpu import INTERPRETED

H100 = gpu_target("cuda:h100")


def residual(x: jax.Array, w: jax.Array, b: jax.Array, more: jax.Array) -> jax.Array:
    return more + (x @ w + b)


def tanh_form(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b, approximate=True)


def masked_scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """A batch, with a mask of rows and columns."""
    scores = jnp.einsum("htd,hsd->hts", q, k) / 4
    return jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -1e9)


def normalised(
    x: jax.Array, w: jax.Array, scale: jax.Array, b: jax.Array, more: jax.Array
) -> jax.Array:
    """A convolution as in a residual network, its norm in the open."""
    return jnp.maximum(convolved(x, w) * scale + b + more, 0.0)


Case = tuple[Callable[..., jax.Array], tuple[tuple[int, ...], ...]]
CASES: tuple[Case, ...] = (
    (residual, ((33, 48), (48, 40), (40,), (33, 40))),
    (tanh_form, ((33, 48), (48, 40), (40,))),
    (masked_scores, ((3, 33, 16), (3, 33, 16))),
    (normalised, ((2, 7, 7, 32), (3, 3, 32, 24), (24,), (24,), (2, 7, 7, 24))),
)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_a_whole_expression_behind_sums_is_one_kernel(
    function: Callable[..., jax.Array], shapes: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    program = load(function, *values)
    (task,), _ = tasks(sites(program), INTERPRETED)
    kernel = gpu_form(task.compute).kernel
    assert isinstance(kernel, GpuProduct | GpuConvolution)
    assert kernel.tail is not None
    site = next(s for s in sites(program) if s.kernel == task.kernel)
    built = built_here(task.kernel, task.space.schedule(task.space.heuristic()), INTERPRETED)
    made = assembled(program, [replacement(program, site, built)], INTERPRETED)(*values)
    np.testing.assert_allclose(made, function(*values), rtol=1e-4, atol=1e-4)


def kernel_of(function: Callable[..., Any], *arguments: Any) -> Any:
    return gpu_form(compute_of(graph_of(sites(load(function, *arguments))[0].kernel))).kernel


def test_the_gaussian_unit_is_an_epilogue_that_kernels_of_warpgroups_have() -> None:
    given = [argument(f"bf16[{s}]") for s in ("512,768", "768,3072", "3072")]
    unit = kernel_of(lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False), *given)
    assert (unit.epilogue, unit.tail) == ("bias_gelu", None)
    assert "hopper_ring_product" in [s.name for s in gpu_space(unit, H100).sketches]


def test_sums_whose_kernels_are_much_faster_are_left_alone() -> None:
    shapes = ("512,768", "768,768", "768", "512,768")
    product = kernel_of(residual, *(argument(f"bf16[{s}]") for s in shapes))
    with pytest.raises(UnsupportedKernel, match="expected a bias, alone or with a rectifier or a"):
        gpu_space(product, H100)
    assert gpu_space(kernel_of(residual, *(f32(*map(int, s.split(","))) for s in shapes)), H100)
    with pytest.raises(UnsupportedKernel, match="expected sums alone or with a bias, got more"):
        tpu_space(product, tpu_target("tpu:v5e"))
    windows = ("8,14,14,64", "3,3,64,64", "64", "64", "8,14,14,64")
    images = kernel_of(normalised, *(argument(f"bf16[{s}]") for s in windows))
    with pytest.raises(UnsupportedKernel, match="behind the sums of these windows"):
        gpu_space(images, H100)

"""Kernels compiled for devices that are not here, by the compilers of these devices.

`make test-aot` runs this in an environment that has JAX's plug-ins for CUDA and TPUs.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.codegen.pallas.ahead import compiled_ahead
from hlotune.codegen.pallas.assembler import assembler, register_use
from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.elements import struct
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import BuildError, UnsupportedKernel
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.patterns.gpu_forms import gpu_form
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu import features
from hlotune.schedules.spaces.gpu.searched import AnyBlockSpace, block_space
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.kinds import NAMED, named_target
from tests.codegen.test_pallas_tails import CASES as TAILED
from tests.support.gpu_programs import PROGRAMS, f32

pytestmark = pytest.mark.aot
A100 = gpu_target("cuda:a100")
ANYWHERE = int(os.environ.get("AOT_CONFIGS", "3"))
"""Legal configs of each space from anywhere in it, beside those that it proposes first."""
KERNELS: dict[str, AnyGpuKernel] = {
    "product": GpuProduct(1024, 1024, 512, "bf16"),
    "product of odd extents with a Gaussian unit": GpuProduct(
        1000, 900, 500, "f32", epilogue="bias_gelu"
    ),
    "product of tf32": GpuProduct(1024, 1024, 512, "tf32"),
    "product of tf32 with a bias": GpuProduct(1000, 900, 500, "tf32", epilogue="bias_relu"),
    "attention of tf32": GpuAttention(4, 500, 500, 64, True, "tf32"),
    "convolution of tf32": GpuConvolution(8, 28, 128, 128, 3, 1, 1, "tf32", "bias"),
    "products of a batch": GpuProduct(200, 64, 130, "bf16", batch=3),
    "softmax by hand": GpuRows("softmax", 512, 1000, "f32"),
    "layer norm by hand": GpuRows("layer_norm", 512, 4096, "bf16"),
    "causal attention": GpuAttention(4, 512, 512, 128, True, "bf16"),
    "attention of odd extents": GpuAttention(4, 500, 700, 80, False, "f16"),
    "convolution": GpuConvolution(8, 28, 128, 128, 3, 1, 1, "bf16", "bias_relu"),
    "convolution with a stride": GpuConvolution(8, 28, 128, 128, 3, 2, 1, "bf16"),
    "convolution of three channels": GpuConvolution(2, 56, 3, 64, 7, 2, 3, "bf16"),
    "convolution with gaps": GpuConvolution(8, 28, 64, 64, 3, 1, 2, "bf16", dilation=2),
    "convolution in groups": GpuConvolution(8, 28, 64, 64, 3, 1, 1, "bf16", groups=4),
    "product of no whole blocks": GpuProduct(1000, 200, 1000, "bf16", epilogue="bias_relu"),
    "products of a batch of no whole blocks": GpuProduct(200, 88, 136, "bf16", batch=3),
    "attention of no whole blocks": GpuAttention(2, 300, 520, 64, False, "bf16"),
    "causal attention of no whole blocks": GpuAttention(2, 300, 300, 64, True, "bf16"),
    "attention of shared keys": GpuAttention(8, 256, 256, 128, True, "bf16", group=4),
    "attention of values of another depth": GpuAttention(
        2, 200, 200, 64, False, "f32", value_depth=96
    ),
    "convolution of no whole blocks": GpuConvolution(12, 10, 64, 104, 3, 1, 1, "bf16", "bias"),
}
_PARTS = (*[argument("bf16[1,200,4,64]")] * 3, argument("bf16[1,4,200,200]"))
BIASED = (lambda q, k, v, b: jax.nn.dot_product_attention(q, k, v, bias=b)), _PARTS
TAILS = {f.__name__: (f, tuple(f32(*s) for s in shapes)) for f, shapes in TAILED}
"""Programs whose kernels make more of sums than a bias."""
MADE = {**PROGRAMS, **TAILS, "attention with a bias": BIASED}


@cache
def kernel_named(name: str) -> AnyGpuKernel:
    if name in KERNELS:
        return KERNELS[name]
    function, arguments = MADE[name]
    return gpu_form(compute_of(graph_of(sites(load(function, *arguments))[0].kernel))).kernel


def space_of(name: str, target: str) -> AnyBlockSpace:
    return block_space(kernel_named(name), named_target(target))


ALL = [(n, t) for n in (*KERNELS, *MADE) for t in NAMED]
FOR_GPUS_ALONE = (
    "product of tf32", "product of tf32 with a bias", "attention of tf32", "convolution of tf32",
    "attention of odd extents", "convolution",
    "convolution with a stride", "convolution of three channels", "pooling", "transpose",
    "integers", "convolution with gaps", "convolution in groups", "convolution of no whole blocks",
    "attention with a bias", *TAILS,
)  # fmt: skip
LACKING = [(n, t) for n, t in ALL if t.startswith("tpu:") and n in FOR_GPUS_ALONE]
PAIRS = [pair for pair in ALL if pair not in LACKING]


@pytest.mark.parametrize(("name", "target"), LACKING, ids=[f"{n} for {t}" for n, t in LACKING])
def test_what_tpus_have_no_schedules_for_is_refused(name: str, target: str) -> None:
    with pytest.raises(UnsupportedKernel):
        space_of(name, target)


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=[f"{n} for {t}" for n, t in PAIRS])
def test_what_a_space_allows_compiles(name: str, target: str) -> None:
    space = space_of(name, target)
    random = np.random.default_rng(0)
    anywhere = space.configs[random.integers(len(space.configs), size=ANYWHERE)]
    tried = np.unique(np.concatenate([space.propose(len(space.sketches) + 1), anywhere]), axis=0)
    kernel = kernel_named(name)
    for config in tried:
        compiled_ahead(space.target, build(kernel, *space.named(config)), operands(kernel))


def _block(m: int, n: int, warps: int) -> dict[str, int]:
    fixed = {"block_k": 64, "split_k": 1, "group_m": 1, "stages": 2}
    return {**fixed, "block_m": m, "block_n": n, "warps": warps}


def _queries(queries: int, keys: int) -> dict[str, int]:
    return {"block_q": queries, "block_k": keys, "warps": 8, "stages": 2}


REGISTERS = [
    ("product", "triton_product", _block(128, 32, 8)),
    ("product", "triton_product", _block(32, 64, 4)),
    ("product", "triton_product", _block(256, 128, 8)),
    ("causal attention", "triton_attention", _queries(64, 64)),
    ("causal attention", "triton_attention", _queries(32, 32)),
    ("layer norm by hand", "triton_rows", {"rows": 1, "turns": 1, "warps": 8}),
    ("layer norm by hand", "triton_rows", {"rows": 1, "turns": 1, "warps": 32}),
]


@pytest.mark.parametrize(("name", "sketch", "knobs"), REGISTERS)
def test_estimated_registers_are_about_those_of_the_assembler(
    name: str, sketch: str, knobs: dict[str, int], tmp_path: Path
) -> None:
    kernel, ptxas = kernel_named(name), assembler()
    assert not isinstance(kernel, GpuStages)
    space = gpu_space(kernel, A100)
    config = space.config(sketch, knobs)
    seen = dict(zip(features.NAMES, features.features(kernel, space, config[None])[0], strict=True))
    compiled_ahead(A100, build(kernel, sketch, knobs), operands(kernel), tmp_path)
    assert ptxas is not None
    uses = register_use(tmp_path, A100, ptxas)
    most = max(use.registers for use in uses)
    assert most / 1.5 < 2 ** seen["registers"] < 1.5 * most
    assert (seen["spilled_share"] > 0) == any(use.spilled_bytes for use in uses)


def test_a_second_operand_that_lies_turned_is_not_turned_again_for_hopper(tmp_path: Path) -> None:
    """Its matrix unit takes tf32 along k alone, so the kernel's own operand is turned ahead of it.

    Both turns cancel where a program multiplies by `w.T`, as linear layers of PyTorch do.
    """
    product, target = GpuProduct(512, 256, 384, "tf32"), gpu_target("cuda:h100")
    space = gpu_space(product, target)
    number = next(n for n, s in enumerate(space.sketches) if s.name == "hopper_product")
    config = space.configs[space.configs[:, 0] == number][0]
    function, (x, w) = build(product, *space.named(config)), operands(product)
    turned = struct(w.shape[::-1], product.element)
    counts = []
    for name, called, second in (
        ("as it is", function, w),
        ("turned", _of_turned(function), turned),
    ):
        folder = tmp_path / name
        folder.mkdir()
        compiled_ahead(target, called, (x, second), folder)
        (text,) = folder.glob("*gpu_after_optimizations.txt")
        counts.append(text.read_text().count(" transpose("))
    assert counts[0] > counts[1] == 0


def _of_turned(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w: function(x, w.T)


TRITON = {"block_m": 256, "block_n": 128, "block_k": 128, "split_k": 1, "group_m": 8, "warps": 8}
HOPPER = {
    "block_m": 128, "block_n": 256, "block_k": 64, "stages": 6, "split_n": 0, "cluster": 0,
    "minor_n": 0, "panel": 8, "chained": 0,
}  # fmt: skip
TOO_LARGE = [
    ("cuda:a100", "triton_product", {**TRITON, "stages": 3}, "shared memory"),
    ("cuda:h100", "triton_product", {**TRITON, "stages": 5}, "shared memory"),
    ("cuda:h200", "hopper_product", HOPPER, "shared memory"),
    *(
        (name, "tpu_product", {"block_m": 8192, "block_n": 4096, "block_k": 128}, "vector memory")
        for name in ("tpu:v5e", "tpu:v6e")
    ),
]


@pytest.mark.parametrize(
    ("target", "sketch", "knobs", "limit"),
    TOO_LARGE,
    ids=[f"{s} for {t}" for t, s, *_ in TOO_LARGE],
)
def test_what_the_memory_of_a_device_does_not_hold_is_refused_by_both(
    target: str, sketch: str, knobs: dict[str, int], limit: str
) -> None:
    """By the space's own limit, and by the device's compiler."""
    product = GpuProduct(8192, 4096, 8192, "bf16")
    space = block_space(product, named_target(target))
    of_sketch = next(s for s in space.sketches if s.name == sketch)
    broken = [
        x.message
        for x in of_sketch.limits({k: np.array([v]) for k, v in knobs.items()})
        if not x.holds[0]
    ]
    assert any(limit in message for message in broken)
    with pytest.raises(BuildError, match=r"[Ss]hared memory|vmem"):
        compiled_ahead(space.target, build(product, sketch, knobs), operands(product))


@pytest.mark.parametrize(
    ("queries", "keys", "stages", "fits"),
    [(64, 128, 4, False), (128, 128, 3, False), (64, 128, 3, True), (128, 128, 2, True)],
)
def test_a_bias_takes_its_room_in_shared_memory(
    queries: int, keys: int, stages: int, fits: bool
) -> None:
    kernel, target = kernel_named("attention with a bias"), named_target("cuda:h200")
    space = block_space(kernel, target)
    knobs = {**_queries(queries, keys), "stages": stages}
    config = np.array([[len(space.sketches) - 1, queries, keys, 8, stages]], np.int32)
    assert space.named(config[0]) == ("triton_attention", knobs)
    assert space.legal(config)[0] == fits
    try:
        compiled_ahead(space.target, build(kernel, "triton_attention", knobs), operands(kernel))
    except BuildError as error:
        assert not fits and "hared memory" in str(error), error
    else:
        assert fits

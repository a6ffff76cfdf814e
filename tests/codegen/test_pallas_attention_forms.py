"""Attention as programs have it, recognised as the kernel of GPUs and interpreted."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from hlotune.codegen.backend import Signature
from hlotune.codegen.pallas.backend import BACKEND
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.verification.deviation import units_off
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import TOLERANCE
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.patterns.gpu_forms import gpu_form
from hlotune.schedules.spaces.gpu.searched import blocks_name
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.gpu import gpu_target
from tests.support.attentions import PROGRAMS, attention_sites, f32
from tests.support.interpreted_gpu import INTERPRETED

BLOCKS = blocks_name("triton_attention", {"block_q": 16, "block_k": 16, "warps": 4, "stages": 2})


def fused(x: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Queries out of one array for all three, heads merged again: as GPT-2 has it."""
    q = x[:, 32:64].reshape(21, 2, 16).transpose(1, 0, 2)
    scores = q @ k.transpose(0, 2, 1) / jnp.sqrt(16.0)
    seen = jnp.arange(21)[:, None] >= jnp.arange(21)
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
    return (weights @ v).transpose(1, 0, 2).reshape(21, 32)


def units_of(kernel: Kernel) -> float:
    graph = graph_of(kernel)
    case = References(kernel).case("normal")
    built = BACKEND.emit(compute_of(graph), Schedule(BLOCKS), INTERPRETED)
    signature = Signature(graph.argument_types, graph.result_types)
    results = BACKEND.call(BACKEND.load(built), signature, case.values)
    off = max(units_off(t.reference, t.of(results)) for t in case.together)
    return off / TOLERANCE["standard"]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_attention_of_a_program_is_one_kernel_that_agrees_with_the_oracle(name: str) -> None:
    assert units_of(attention_sites(name)[0].kernel) < 1


def test_parts_of_one_array_and_merged_heads_are_read_and_stored_where_they_lie() -> None:
    site = next(
        s
        for s in sites(load(fused, f32(21, 96), f32(2, 21, 16), f32(2, 21, 16)))
        if s.pattern == "attention"
    )
    form = gpu_form(compute_of(graph_of(site.kernel)))
    kernel = form.kernel
    assert isinstance(kernel, GpuAttention)
    assert (kernel.heads, kernel.queries, kernel.depth, kernel.causal) == (2, 21, 16, True)
    assert kernel.factor == pytest.approx(1 / 4)
    assert units_of(site.kernel) < 1


def kernel_of(name: str) -> GpuAttention:
    kernel = gpu_form(compute_of(graph_of(attention_sites(name)[0].kernel))).kernel
    assert isinstance(kernel, GpuAttention)
    return kernel


def test_forms_of_attention_are_told_apart() -> None:
    grouped, plain, masked = map(kernel_of, ("grouped", "plain", "bias and mask"))
    assert (grouped.heads, grouped.group, grouped.key_heads, grouped.scores) == (6, 3, 2, None)
    assert (plain.depth, plain.features) == (16, 24)
    assert masked.scores is not None
    assert {t.dtype for t in masked.scores.tensors} == {"f32", "i1"}
    assert kernel_of("causal").causal
    assert kernel_of("by hand").scores is not None  # its mask begins behind the first key


def test_kernels_of_warpgroups_take_shared_keys_and_no_bias() -> None:
    shared = GpuAttention(8, 256, 256, 64, True, "bf16", group=4)
    names = [s.name for s in gpu_space(shared, gpu_target("cuda:h100")).sketches]
    assert names == ["hopper_attention", "triton_attention"]
    tail = kernel_of("bias and mask").scores
    biased = replace(shared, causal=False, scores=tail)
    names = [s.name for s in gpu_space(biased, gpu_target("cuda:h100")).sketches]
    assert names == ["triton_attention"]

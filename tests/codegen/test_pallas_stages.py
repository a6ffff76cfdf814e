"""Any stages over rows as kernels for GPUs: interpreted against the oracle, and lowered."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlotune.codegen.backend import Signature
from hlotune.codegen.pallas.backend import BACKEND
from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.expressions import OPERATIONS
from hlotune.codegen.pallas.lowering import lowered_for
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.verification.deviation import units_off
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import TOLERANCE
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns import gpu_operations, gpu_stages
from hlotune.schedules.patterns.gpu_forms import gpu_form
from hlotune.schedules.patterns.gpu_stages import GpuStages
from hlotune.schedules.spaces.gpu.searched import blocks_name
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.spaces.tpu.space import tpu_space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import tpu_target
from tests.support.gpu_programs import PROGRAMS, f32
from tests.support.interpreted_gpu import INTERPRETED, INTERPRETED_TPU

H100, V5E = gpu_target("cuda:h100"), tpu_target("tpu:v5e")
MAP = ("triton_map", {"rows": 4, "columns": 16, "warps": 1})
WHOLE = ("triton_stages", {"rows": 4, "warps": 1})
LONG = ("triton_long_stages", {"rows": 4, "block": 16, "warps": 1, "stages": 2})
FLAT = ("triton_map", {"rows": 64, "columns": 1, "warps": 1})
NARROW = ("triton_map", {"rows": 64, "columns": 8, "warps": 1})
MAPS = {"Gaussian unit": MAP, "transpose": NARROW, "integers": FLAT}
MATRICES = {
    "layer norm": 8, "layer norm of bf16": 16, "masked softmax": 8, "batch norm": 8,
    "exponentials": 8, "Gaussian unit": 16,
}  # fmt: skip
"""Programs whose kernels TPUs have schedules for as well, and rows of a step."""
CASES = [(name, MAPS.get(name, WHOLE)) for name in PROGRAMS]


@cache
def kernel_of(name: str) -> Kernel:
    function, arguments = PROGRAMS[name]
    return sites(load(function, *arguments))[0].kernel


def compute_named(name: str) -> Compute:
    return compute_of(graph_of(kernel_of(name)))


def stages_of(function: Any, *arguments: Any) -> GpuStages:
    kernel = sites(load(function, *arguments))[0].kernel
    return gpu_stages.gpu_stages(compute_of(graph_of(kernel)))


def units_of(name: str, schedule: tuple[str, dict[str, int]], target: Target) -> float:
    """How far an interpreted schedule is off, in units of the tolerance."""
    graph = graph_of(kernel_of(name))
    case = References(kernel_of(name)).case("normal")
    built = BACKEND.emit(compute_of(graph), Schedule(blocks_name(*schedule)), target)
    signature = Signature(graph.argument_types, graph.result_types)
    results = BACKEND.call(BACKEND.load(built), signature, case.values)
    return max(units_off(t.reference, t.of(results)) for t in case.together) / TOLERANCE["standard"]


@pytest.mark.parametrize(("name", "schedule"), CASES, ids=[name for name, _ in CASES])
def test_an_interpreted_kernel_agrees_with_the_oracle(
    name: str, schedule: tuple[str, dict[str, int]]
) -> None:
    assert units_of(name, schedule, INTERPRETED) < 1


@pytest.mark.parametrize("name", MATRICES)
def test_a_kernel_of_a_tpu_agrees_with_the_oracle_and_is_lowered(name: str) -> None:
    schedule = ("tpu_stages", {"rows": MATRICES[name]})
    assert units_of(name, schedule, INTERPRETED_TPU) < 1
    built = BACKEND.emit(compute_named(name), Schedule(blocks_name(*schedule)), V5E)
    assert b"tpu_custom_call" in built.object


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pooling", "expected a0 to be read along whole rows or columns"),
        ("integers", "expected tensors of f32, bf16, i32, got i1"),
    ],
)
def test_stages_whose_tensors_are_no_matrices_are_not_for_tpus(name: str, problem: str) -> None:
    stages = gpu_stages.gpu_stages(compute_named(name))
    with pytest.raises(UnsupportedKernel, match=problem):
        tpu_space(stages, V5E)


def test_rows_that_vector_memory_does_not_hold_are_not_for_tpus() -> None:
    with pytest.raises(UnsupportedKernel, match="expected rows that vector memory holds"):
        tpu_space(stages_of(jax.nn.softmax, f32(1024, 1 << 20)), V5E)


def test_rows_that_are_gone_through_in_parts_give_the_same() -> None:
    stages = stages_of(PROGRAMS["layer norm"][0], f32(21, 300), f32(300), f32(300))
    values = [jnp.sin(jnp.arange(o.size) * 0.7).reshape(o.shape) for o in operands(stages)]
    (whole,), (long,) = (
        jax.jit(build(stages, *schedule, interpret=True))(*values) for schedule in (WHOLE, LONG)
    )
    assert jnp.abs(whole - long).max() < 1e-5


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_is_lowered_without_a_device(name: str) -> None:
    stages = gpu_form(compute_named(name)).kernel
    assert isinstance(stages, GpuStages)
    space = gpu_space(stages, H100)
    for sketch, knobs in (space.named(c) for c in space.propose(len(space.sketches))):
        text = lowered_for(H100, build(stages, sketch, knobs), operands(stages)).as_text()
        assert "__gpu$xla.gpu.triton" in text


def test_every_operation_that_is_taken_is_emitted_and_no_other() -> None:
    assert set(OPERATIONS) | {"convert"} == gpu_operations.OPERATIONS


@pytest.mark.parametrize(
    ("function", "arguments", "problem"),
    [
        (lambda x: jnp.argmax(x, -1), (f32(64, 512),), "reductions by sum, max, min, got argmax"),
        (lambda x: jnp.cumsum(x, -1), (f32(64, 512),), "got .* which is a scan"),
        (lambda x: x / x.sum(), (f32(64, 512),), "expected rows that do not depend on one another"),
        (lambda x: jnp.cbrt(x), (f32(64, 512),), "expected operations .* got cbrt of f32"),
        (lambda x: x * 2, (argument("i16[64,512]"),), "expected tensors of .* got .* of i16"),
        (
            lambda x, n: x[n] * 2,
            (f32(64, 512), argument("i32[300]")),
            "expected loads at places that are known beforehand",
        ),
    ],
)
def test_what_has_no_rows_of_its_own_is_left_to_the_default_compiler(
    function: Any, arguments: Any, problem: str
) -> None:
    with pytest.raises(UnsupportedKernel, match=problem):
        stages_of(function, *arguments)

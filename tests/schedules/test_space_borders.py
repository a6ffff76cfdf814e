"""What the space of a contraction leaves out, and how far it reaches."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hlotune.hlo.frontends import program
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.features.loop_paths import Path, digest, path_of
from hlotune.schedules.ir.borders import interior
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load, map_loads
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.spaces.cpu_contraction import space as cpu
from hlotune.schedules.spaces.cpu_contraction.sketch import PACK_LEVELS, layout
from hlotune.schedules.targets.cpu import CpuTarget
from tests.schedules.test_cpu_contraction_space import (
    AVX2,
    AVX512,
    binds_features,
    binds_legality,
    drawn,
    nest_of,
    space_of,
)
from tests.schedules.test_steps import blur
from tests.support.computes import Case, backwards, named, planes, sized, tiled, whole


def test_an_operand_of_one_element_is_not_packed() -> None:
    case = sized("f32[40,1]", "f32[1,1]")
    assert case.compute.tensor("a1").shape == ()
    space = case.space(AVX2)
    assert [x.tensor for x in space.contraction.operands] == ["a0"]
    binds_features(space, space.sample(10, np.random.default_rng(0)))


def test_a_kernel_that_is_no_contraction_has_no_space() -> None:
    compute = named("small conv").compute
    alone = Compute(compute.tensors, compute.stages[1:])
    with pytest.raises(UnsupportedKernel, match="expected one reduction read by a last stage"):
        cpu.space_of(alone, AVX2)


def test_what_is_no_sum_or_is_read_at_another_place_has_no_space() -> None:
    compute = blur(SUM)
    double, window, out = compute.stages
    total, _ = out.loads
    elsewhere = replace(total, index=(Affine.axis("i0", -1) + 19,))
    turned = replace(out, values=(map_loads(out.values[0], {total: elsewhere}),))
    for wrong in (blur(MAX), Compute(compute.tensors, (double, window, turned))):
        with pytest.raises(UnsupportedKernel, match="the one sum of the reduction point by point"):
            cpu.space_of(wrong, AVX2)


@pytest.mark.parametrize("source", ["argument", "constant"])
def test_what_is_read_twice_has_no_packed_form_in_place_of_its_values(source: str) -> None:
    w = whole(32, 32, seed=1)
    if source == "constant":
        case = Case("twice", lambda x: x @ jnp.asarray(w) + jnp.asarray(w), (whole(32, 32),))
    else:
        case = Case("once", lambda x, w: x @ w + w, (whole(32, 32), w))
    space = case.space(AVX512)
    assert {dict(s.packs)["a1"] for s in space.sketches} == set(PACK_LEVELS) - {"load"}
    _, built = case.heuristic(host_target())
    assert isinstance(verify(case.kernel, built), Verdict)


def test_one_chunk_of_partial_sums_is_not_taken_for_sums_handed_over_in_registers() -> None:
    case, space = named("small gemm"), space_of("small gemm")
    registers, chunk = {"i0": 4, "i1": 2}, {"r0": 29}

    def path(chunked: bool) -> Path:
        schedule = tiled(case, AVX512, chunked=chunked, register=registers, steps=chunk)
        return path_of(replay(case.compute, schedule, AVX512), space.contraction)

    handed, stored = path(False), path(True)
    assert handed.handed_over == 1 and stored.handed_over == 0
    assert digest(handed) != digest(stored)
    assert digest(handed) != digest(replace(handed, handed_over=stored.handed_over))


def test_a_window_over_what_is_no_product_is_not_clipped() -> None:
    compute = named("small conv").compute
    contract, out = compute.stages
    added = Apply("add", contract.loads, "f32")
    space = cpu.space_of(
        Compute(compute.tensors, (replace(contract, values=(added,)), out)), AVX512
    )
    assert not space.knobs.columns("clip") and space.knobs.columns("peel")
    assert space_of("small conv").knobs.columns("clip")
    binds_legality(space, drawn(space, 20, 0))


def test_an_operand_that_is_read_backwards_has_no_panels() -> None:
    space = cpu.space_of(backwards(named("small gemm").compute), AVX512)
    binds_legality(space, drawn(space, 40, 0))
    binds_features(space, space.sample(20, np.random.default_rng(0)))
    load = space.contraction.operands[1]
    assert layout(space.contraction, load.tensor, "i1", 16) == ((0, 1), (1, 1))


@pytest.mark.parametrize("back", [(), (0,), (0, 1)])
def test_phases_of_windows_are_cut_off_backwards_as_forwards(back: tuple[int, ...]) -> None:
    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, lax.rev(w, back), (1, 1), [(2, 1)] * 2, lhs_dilation=(2, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    case = Case(f"back {back}", function, (whole(1, 5, 6, 3), whole(3, 3, 3, 20, seed=1)))
    space = case.space(AVX512)
    windows = space.contraction.windows
    assert len(windows["r0"]) == len(windows["r1"]) == 2  # the image and the window itself
    binds_legality(space, drawn(space, 20, 0))
    binds_features(space, space.sample(20, np.random.default_rng(0)))


@given(
    terms=st.lists(st.integers(-3, 3), min_size=2, max_size=2),
    constant=st.integers(-6, 9), extent=st.integers(1, 8), size=st.integers(1, 3),
)  # fmt: skip
def test_what_lies_inside_is_found_in_both_directions(
    terms: list[int], constant: int, extent: int, size: int
) -> None:
    p, r = Axis("p", 7), Axis("r", 3)
    load = Load("x", (Affine.of({"p": terms[0], "r": terms[1]}, constant),), "f32")
    stage = Stage("s", (p,), (r,), (Store("y", (Affine.axis("p"),)),), (load,), SUM)
    compute = Compute((Tensor("x", (extent,), "f32", "argument"),), (stage,))
    low, high = interior(compute, stage, "p", size)

    def is_inside(first: int) -> bool:
        places = (
            load.index[0].value({"p": a, "r": b})
            for a in range(first, first + size)
            for b in range(r.extent)
        )
        return all(0 <= x < extent for x in places)

    if terms[0]:  # where an index does not vary, no position is better than another
        starts = range(p.extent - size + 1)
        assert [k for k in starts if low <= k <= high] == [k for k in starts if is_inside(k)]


def test_weights_of_groups_lie_in_panels_of_whole_vectors_of_one_group() -> None:
    """48 features of a group are three vectors: tiles of two read panels of one."""
    space = space_of("grouped planes")
    features = [a.name for a in space.contraction.parallel if a.extent == 48]
    assert set(features) < {s.vector for s in space.sketches}
    vector, weights = features[0], space.contraction.operands[1].tensor
    panels = {n: layout(space.contraction, weights, vector, 16 * n)[0] for n in (1, 2, 3, 4)}
    assert panels == {1: (0, 16), 2: (0, 16), 3: (0, 48), 4: (0, 16)}
    uneven = planes(6, 5, 8, 40, groups=2).space(AVX512).contraction
    assert {block for _, block in layout(uneven, weights, uneven.parallel[1].name, 16)} == {1}


def test_a_stage_ahead_of_the_contraction_beyond_the_scratch_of_a_call_is_refused() -> None:
    a = Affine.axis
    compute = sized("f32[8,8400]", "f32[8400,8192]").compute
    contract, out = compute.stages
    axes = (Axis("i0", 8400), Axis("i1", 8192))
    store, value = Store("w", (a("i0"), a("i1"))), Load("a1", (a("i0"), a("i1")), "f32")
    before = Stage("before", axes, (), (store,), (Apply("negate", (value,), "f32"),))
    _, w = contract.loads
    product = map_loads(contract.values[0], {w: replace(w, tensor="w")})
    tensors = (*compute.tensors, Tensor("w", (8400, 8192), "f32", "temporary"))
    large = Compute(tensors, (before, replace(contract, values=(product,)), out))
    with pytest.raises(
        UnsupportedKernel, match=r"at most 268435456 bytes, got before of 275251200"
    ):
        cpu.space_of(large, AVX512)


LARGE = {
    "columns": (((1,), (1,)), "f32[8,4096]", "f32[32000,4096]"),
    "rows": (((1,), (0,)), "f32[16384,16384]", "f32[16384,16384]"),
    "both": (((0,), (1,)), "f32[65536,2048]", "f32[50257,65536]"),
    "one": (((1,), (1,)), "f32[1,131072]", "f32[65536,131072]"),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_whatever_is_proposed_for_a_large_shape_is_legal(name: str, target: CpuTarget) -> None:
    (left, right), *types = LARGE[name]
    numbers = ((left, right), ((), ()))
    case = Case(
        name, lambda x, w: lax.dot_general(x, w, numbers), tuple(map(program.argument, types))
    )
    space, rng = case.space(target), np.random.default_rng(0)
    assert nest_of(space, space.heuristic()) is not None
    configs = space.sample(30, rng)
    assert space.legal(configs).all()
    assert space.legal(space.neighbours(configs, rng)).all()


def test_what_is_packed_when_a_program_is_loaded_may_be_larger_than_scratch() -> None:
    compute = sized("f32[8,8400]", "f32[8400,8192]").compute
    tensors = tuple(replace(t, role="constant") if t.name == "a1" else t for t in compute.tensors)
    space = cpu.space_of(Compute(tensors, compute.stages), AVX512)
    config = space.heuristic()
    assert dict(space.sketches[config[0]].packs)["a1"] == "load"
    assert space.legal(config[None])[0] and nest_of(space, config) is not None

"""Spaces of schedules for GPUs: what is legal, what is refused, what comes first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.spaces.gpu.space import GpuSpace
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target

A100, H100 = gpu_target("cuda:a100"), gpu_target("cuda:h100")
GEMM = GpuProduct(4096, 4096, 4096, "bf16")
TRITON = {
    "block_m": 128,
    "block_n": 128,
    "block_k": 64,
    "split_k": 1,
    "group_m": 8,
    "warps": 8,
    "stages": 4,
}
HOPPER = {
    "block_m": 128,
    "block_n": 256,
    "block_k": 64,
    "stages": 4,
    "split_n": 0,
    "cluster": 0,
    "minor_n": 0,
    "panel": 8,
    "chained": 0,
}
ROWS = GpuRows("softmax", 8192, 4096, "f32")
ATTENTION = GpuAttention(16, 2048, 2048, 128, True, "bf16")

REFUSED: tuple[tuple[GpuKernel, str, dict[str, int], str], ...] = (
    (GEMM, "triton_product", {**TRITON, "block_m": 96}, "block_m is 96: expected one of"),
    (
        GEMM,
        "triton_product",
        {**TRITON, "block_m": 256, "block_k": 128, "stages": 5},
        "at most 232448 bytes of shared memory a block",
    ),
    (
        GEMM,
        "triton_product",
        {**TRITON, "block_m": 256, "block_n": 256, "block_k": 32, "stages": 2},
        "at most 160 registers a thread for sums",
    ),
    (GEMM, "triton_product", {**TRITON, "block_m": 16, "block_n": 16}, "at least 2 results"),
    (
        GpuProduct(64, 320, 64, "bf16"),
        "triton_product",
        {**TRITON, "block_m": 64, "block_n": 64, "group_m": 1, "split_k": 2},
        "parts of k that are whole blocks",
    ),
    (
        GpuProduct(256, 256, 256, "bf16"),
        "triton_product",
        TRITON,
        "groups no taller than the result",
    ),
    (GEMM, "hopper_product", {**HOPPER, "stages": 5}, "at most 232448 bytes of shared memory"),
    (
        GEMM,
        "hopper_product",
        {**HOPPER, "block_m": 256, "stages": 2},
        "at most 160 registers a thread for sums",
    ),
    (GEMM, "hopper_product", {**HOPPER, "block_m": 64}, "parts of a warpgroup that are multiples"),
    (
        GpuProduct(4096, 4096, 4032, "bf16"),
        "hopper_product",
        HOPPER,
        "blocks of a cluster that divide the result",
    ),
    (
        GpuProduct(4096, 4032, 4096, "bf16"),
        "hopper_product",
        {**HOPPER, "block_n": 128, "block_k": 128, "stages": 3},
        "blocks that divide k",
    ),
    (
        GpuProduct(4096, 128, 4096, "bf16"),
        "hopper_product",
        HOPPER,
        "no more stages than blocks along k",
    ),
    (
        GpuProduct(256, 4096, 4096, "bf16"),
        "hopper_product",
        HOPPER,
        "panels no wider than the grid",
    ),
    (GEMM, "hopper_product", {**HOPPER, "stages": 3, "chained": 1}, "whole rounds of stages"),
    (ROWS, "triton_rows", {"rows": 16, "turns": 1, "warps": 1}, "at most 128 elements a thread"),
    (
        GpuRows("softmax", 1024, 4096, "f32"),
        "triton_rows",
        {"rows": 1, "turns": 16, "warps": 8},
        "a block of threads for each multiprocessor",
    ),
    (
        GpuRows("softmax", 64, 16, "f32"),
        "triton_rows",
        {"rows": 1, "turns": 1, "warps": 2},
        "at least 1 element a thread",
    ),
    (
        GpuRows("softmax", 1, 4096, "f32"),
        "triton_rows",
        {"rows": 2, "turns": 1, "warps": 8},
        "no more rows than there are",
    ),
    (
        ROWS,
        "triton_long_rows",
        {"block": 4096, "warps": 8, "stages": 1},
        "blocks shorter than a row",
    ),
    (
        GpuRows("softmax", 64, 99999, "f32"),
        "triton_long_rows",
        {"block": 1024, "warps": 32, "stages": 1},
        "at least 2 elements a thread",
    ),
    (
        GpuRows("softmax", 64, 99999, "f32"),
        "triton_long_rows",
        {"block": 16384, "warps": 1, "stages": 1},
        "warps is 1: expected one of",
    ),
    (
        ATTENTION,
        "triton_attention",
        {"block_q": 128, "block_k": 128, "warps": 4, "stages": 2},
        "at most 230 registers a thread",
    ),
    (
        GpuAttention(1, 16, 64, 64, False, "bf16"),
        "triton_attention",
        {"block_q": 64, "block_k": 16, "warps": 4, "stages": 2},
        "blocks no longer than the queries",
    ),
    (
        GpuAttention(1, 64, 16, 64, False, "bf16"),
        "triton_attention",
        {"block_q": 64, "block_k": 64, "warps": 4, "stages": 2},
        "blocks no longer than the keys",
    ),
    (
        ATTENTION,
        "hopper_attention",
        {"block_q": 128, "block_k": 128, "stages": 5},
        "at most 232448 bytes of shared memory",
    ),
    (
        ATTENTION,
        "hopper_attention",
        {"block_q": 64, "block_k": 192, "stages": 2},
        "blocks that divide the keys",
    ),
    (
        GpuAttention(1, 384, 384, 64, False, "bf16"),
        "hopper_attention",
        {"block_q": 128, "block_k": 64, "stages": 2},
        "blocks that divide the queries",
    ),
    (
        GpuAttention(1, 256, 256, 64, False, "bf16"),
        "hopper_attention",
        {"block_q": 64, "block_k": 128, "stages": 3},
        "no more stages than blocks of keys",
    ),
)


@pytest.mark.parametrize(
    ("kernel", "sketch", "knobs", "message"), REFUSED, ids=[message for *_, message in REFUSED]
)
def test_what_a_gpu_cannot_run_is_refused(
    kernel: GpuKernel, sketch: str, knobs: dict[str, int], message: str
) -> None:
    space = gpu_space(kernel, H100)
    config = space.config(sketch, knobs)
    with pytest.raises(ScheduleError, match=message):
        space.check(config)


def test_a_sketch_that_is_none_is_one_clear_error() -> None:
    space = gpu_space(GEMM, H100)
    config = space.propose(1)[0].copy()
    config[0] = 9
    with pytest.raises(ScheduleError, match="sketch 9 is none of this space"):
        space.check(config)
    with pytest.raises(ScheduleError, match="no sketch magic with the knobs warps"):
        space.config("magic", {"warps": 4})


@pytest.mark.parametrize("kernel", [GEMM, ROWS, ATTENTION], ids=lambda k: type(k).__name__)
def test_one_config_is_refused_where_an_array_of_them_is(kernel: GpuKernel) -> None:
    space = gpu_space(kernel, H100)
    random = np.random.default_rng(0)
    every = np.concatenate([space._grid(n) for n in range(len(space.sketches))])
    some = every[random.permutation(len(every))[:300]]
    for config, legal in zip(some, space.legal(some), strict=True):
        assert accepted(space, config) == legal


def accepted(space: GpuSpace, config: np.ndarray) -> bool:
    try:
        space.check(config)
    except ScheduleError:
        return False
    return True


def test_a_config_has_names_and_comes_back_from_them() -> None:
    space = gpu_space(GEMM, H100)
    for config in space.propose(20):
        assert np.array_equal(space.config(*space.named(config)), config)


def test_proposals_are_legal_distinct_and_of_all_sketches_in_turns() -> None:
    space = gpu_space(GEMM, H100)
    proposed = space.propose(24)
    assert space.legal(proposed).all()
    assert len({c.tobytes() for c in proposed}) == 24
    assert list(proposed[:6, 0]) == [0, 1, 2, 0, 1, 2]


def test_a_ring_of_rooms_takes_extents_that_are_no_whole_blocks() -> None:
    for product in (
        GpuProduct(1568, 512, 2048, "bf16"),
        GpuProduct(1567, 504, 2000, "bf16"),
        GpuProduct(1568, 512, 2048, "f16"),
    ):
        names = [s.name for s in gpu_space(product, H100).sketches]
        assert names == ["hopper_ring_product", "triton_product"]
    for product in (
        GpuProduct(1568, 500, 2048, "bf16"),  # rows of k that do not begin at 16 bytes
        GpuProduct(1568, 512, 2004, "bf16"),  # and of n
        GpuProduct(1568, 512, 2048, "tf32"),
        GpuProduct(32, 512, 2048, "bf16"),
    ):
        assert [s.name for s in gpu_space(product, H100).sketches] == ["triton_product"]


def test_attention_on_hopper_takes_any_number_of_queries_and_keys() -> None:
    for attention in (
        GpuAttention(2, 300, 520, 64, False, "bf16"),
        GpuAttention(2, 301, 301, 128, True, "bf16"),
    ):
        space = gpu_space(attention, H100)
        assert [s.name for s in space.sketches] == ["hopper_attention", "triton_attention"]
        assert (space.configs[:, 0] == 0).any()


def test_guesses_that_tie_do_not_all_have_the_same_blocks() -> None:
    space = gpu_space(GEMM, A100)
    shapes = {
        tuple(named[n] for n in ("block_m", "block_n", "block_k"))
        for named in (space.named(c)[1] for c in space.propose(12))
    }
    assert len(shapes) >= 4


def test_neighbours_differ_in_one_knob_and_are_legal() -> None:
    space = gpu_space(GEMM, H100)
    config = space.config("triton_product", TRITON)
    near = space.neighbours(config)
    assert space.legal(near).all()
    assert ((near != config).sum(axis=1) == 1).all()
    assert len(near) >= 8


extents = st.integers(1, 3000)


@given(m=extents, k=extents, n=extents, batch=st.sampled_from([1, 1, 5]))
def test_every_product_has_a_legal_schedule(m: int, k: int, n: int, batch: int) -> None:
    for element in ("bf16", "f32"):
        space = gpu_space(GpuProduct(m, k, n, element, batch), A100)
        assert len(space.propose(1)) == 1
        assert np.isfinite(space.seconds(space.propose(4))).all()


@given(rows=extents, columns=st.integers(1, 100_000))
def test_every_row_kernel_has_a_legal_schedule(rows: int, columns: int) -> None:
    assert len(gpu_space(GpuRows("layer_norm", rows, columns, "bf16"), H100).propose(1)) == 1


@given(queries=extents, keys=extents, depth=st.integers(1, 256), causal=st.booleans())
def test_every_attention_has_a_legal_schedule(
    queries: int, keys: int, depth: int, causal: bool
) -> None:
    kernel = GpuAttention(3, queries, keys, depth, causal, "bf16")
    assert len(gpu_space(kernel, H100).propose(1)) == 1


@given(
    size=st.integers(7, 64),
    channels=st.integers(1, 600),
    features=st.integers(1, 600),
    window=st.sampled_from([1, 3, 5, 7]),
    stride=st.sampled_from([1, 2]),
)
def test_every_convolution_has_a_legal_schedule(
    size: int, channels: int, features: int, window: int, stride: int
) -> None:
    kernel = GpuConvolution(2, size, channels, features, window, stride, window // 2, "bf16")
    assert len(gpu_space(kernel, A100).propose(1)) == 1


def test_work_and_traffic_are_those_of_the_kernel() -> None:
    assert GEMM.flops == 2 * 4096**3
    assert GEMM.bytes == 3 * 4096**2 * 2
    assert ATTENTION.flops == 4 * 16 * 2048**2 * 128 / 2
    convolution = GpuConvolution(32, 56, 64, 128, 3, 2, 1, "bf16")
    assert (convolution.out, convolution.positions, convolution.terms) == (28, 32 * 28**2, 576)
    assert convolution.flops == 2 * 32 * 28**2 * 576 * 128

"""Sums on a processor's matrix unit: the space, what is computed, and leave to use it."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from hlotune.codegen import host_processor
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime import loader
from hlotune.codegen.runtime.hosts import serial, threaded
from hlotune.measure.machine import targets
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.timing.peaks import compute_text, peak_loops
from hlotune.schedules.algorithms.amx.space import MatrixSpace, depth_of, matrix_space
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.errors import BuildError
from hlotune.schedules.spaces.cpu_contraction import batch
from hlotune.schedules.spaces.cpu_contraction.sketch import PACK_LEVELS
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.units import has_matrix_unit
from tests.codegen.test_contractions import agrees_with_the_oracle, is_right
from tests.schedules.test_dot_instructions import product, transposed, window
from tests.schedules.test_dot_instructions_space import binds
from tests.support.computes import Case, call, whole
from tests.support.contraction_cases import Drawn, contractions

HOST, AMX = host_target(), TARGETS["sapphirerapids"]
narrow = st.sampled_from(("bf16", "bf16->f32", "i8->i32"))
seeds = st.integers(0, 2**32)
on_unit = pytest.mark.skipif(
    not all(has_matrix_unit(HOST, group) for group in ("bf16x2", "i8x4")),
    reason="needs a matrix unit",
)


def space(case: Case, target: CpuTarget = AMX) -> MatrixSpace:
    found = matrix_space(case.compute, target)
    assert found is not None, f"{case} has no products of tiles"
    return found


def first(case: Case, target: CpuTarget = AMX) -> Schedule:
    found = space(case, target)
    return found.schedule(found.heuristic())


def in_tiles(target: CpuTarget) -> st.SearchStrategy[Drawn]:
    """Contractions that have products of tiles: a filter, for it draws anew before it gives up.

    Two thirds of all have none, and with assumptions alone a run now and then met too many of them.
    """
    return contractions(narrow).filter(
        lambda drawn: matrix_space(drawn.case.compute, target) is not None
    )


CASES = {
    case.name: case
    for kind in ("bf16", "i8")
    for case in (
        product(64, 64, 64, kind),
        product(37, 45, 32, kind),
        product(37, 45, 29, kind),
        product(67, 45, 211, kind),
        product(5, 3, 96, kind),
        product(37, 45, 64, kind, spec="km,nk"),
        product(37, 45, 64, kind, frozen=True),
        window(kind, channels=64),
        window(kind, channels=20, frozen=True),
    )
}


# the space --------------------------------------------------------------------------------------


def test_the_first_candidate_is_that_of_the_matrix_unit() -> None:
    found = space_of(product(64, 64, 64, "bf16").compute, AMX)
    assert isinstance(found, AlgorithmsSpace)
    algorithms = [found.schedule(c).algorithm for c in found.firsts()]
    assert algorithms == ["matrix", "dots", "direct"]


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {"sapphirerapids"}))
def test_targets_without_a_unit_have_no_such_space(name: str) -> None:
    assert matrix_space(product(64, 64, 64, "bf16").compute, TARGETS[name]) is None


def test_tiles_of_the_first_candidate_are_two_by_two() -> None:
    case = product(1024, 1024, 1024, "bf16")
    found = space(case)
    tiling = found.tiling(found.heuristic())
    assert tiling.register == {"i0": 32, "i1": 2}
    assert tiling.unroll == {"r0": 16}


def test_what_is_infinite_is_not_multiplied_by_zeros_that_fill_a_window() -> None:
    """Bytes are finite: where a phase lacks a tap, tiles may multiply by zeros."""
    assert matrix_space(transposed("i8").compute, AMX) is not None
    assert matrix_space(transposed("bf16").compute, AMX) is None


def packs(case: Case) -> dict[str, str]:
    """Where the first candidate packs each operand."""
    found = space(case)
    return dict(found.sketches[int(found.heuristic()[0])].packs)


def test_constants_are_packed_as_they_load_on_either_side() -> None:
    x = whole(64, 48).astype(ml_dtypes.bfloat16)

    def function(w: Any) -> Any:
        return lax.dot_general(
            jnp.asarray(x), w, (((0,), (0,)), ((), ())), preferred_element_type=np.float32
        )

    left = Case("left", function, (whole(64, 40, seed=1).astype(ml_dtypes.bfloat16),))
    assert sorted(packs(left).values()) == ["call", "load"]
    assert sorted(packs(product(48, 40, 64, "bf16", frozen=True)).values()) == ["load", "none"]


def test_an_operand_too_large_to_be_packed_ahead_is_packed_by_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = product(64, 512, 64, "bf16")
    assert sorted(packs(case).values()) == ["call", "none"]
    most = batch.MOST_PACK_BYTES.copy()
    most[PACK_LEVELS.index("call")] = 1024
    monkeypatch.setattr(batch, "MOST_PACK_BYTES", most)
    assert sorted(packs(case).values()) == ["none", "task"]


@pytest.mark.parametrize("extent", [5, 16, 37, 97, 1000])
def test_rows_of_a_tile_are_whole_tiles_or_equal_shares(extent: int) -> None:
    found = space(product(extent, 16, 16, "bf16"))
    (rows,) = (k.values for k in found.knobs.knobs if (k.kind, k.axis) == ("register", "i0"))
    shares = {-(-extent // n) for n in range(1, extent + 1)}
    wanted = {n for n in shares | {*range(1, 7), *range(16, 97, 16)} if n <= min(extent, 96)}
    assert set(rows) == wanted


@pytest.mark.parametrize(
    ("extent", "depth"), [(512, 16), (24, 12), (50, 10), (3, 3), (17, 16), (53, 16), (1, 1)]
)
def test_tiles_have_groups_that_divide_a_reduction_where_many_do(extent: int, depth: int) -> None:
    assert depth_of(extent) == depth


@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_arrays_say_what_nests_say(case: Case) -> None:
    check_arrays(case, 16)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_long_arrays_say_what_nests_say(case: Case) -> None:
    check_arrays(case, 100)


def check_arrays(case: Case, count: int) -> None:
    """Configs that are in the space, and as many with any numbers."""
    found, rng = space(case), np.random.default_rng(0)
    configs = np.concatenate([found.sample(count, rng), found._draw(count, rng)])
    configs[count:, 1:] = rng.integers(found.knobs.counts, size=(count, len(found.knobs.counts)))
    binds(case, found, configs)


@given(in_tiles(AMX), seeds)
@settings(max_examples=10)
def test_arrays_say_what_nests_say_of_any_contraction(drawn: Drawn, seed: int) -> None:
    found = space(drawn.case)
    binds(drawn.case, found, found.sample(12, np.random.default_rng(seed)))


@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_a_schedule_is_found_again_in_its_space(case: Case) -> None:
    found = space(case)
    for config in found.sample(10, np.random.default_rng(1)):
        again = found.locate(Schedule.from_json(found.schedule(config).to_json()))
        assert again is not None
        assert found.schedule(again) == found.schedule(config)


# what is computed -------------------------------------------------------------------------------


@on_unit
@pytest.mark.parametrize("case", CASES.values(), ids=repr)
def test_candidates_agree_with_the_oracle(case: Case) -> None:
    found = space(case, HOST)
    configs = [found.heuristic(), *found.sample(6, np.random.default_rng(2))]
    for config in configs:
        agrees_with_the_oracle(case, build(case.compute, found.schedule(config), HOST))


@on_unit
@given(in_tiles(HOST), seeds)
@settings(max_examples=40)
def test_any_contraction_is_right(drawn: Drawn, seed: int) -> None:
    found = space(drawn.case, HOST)
    configs = [found.heuristic(), *found.sample(3, np.random.default_rng(seed))]
    for config in configs:
        schedule = found.schedule(config)
        is_right(drawn, schedule, build(drawn.case.compute, schedule, HOST))


def dense(m: int, n: int, k: int) -> Case:
    """A product with a bias, cut off below zero, in bf16."""
    x = whole(m, k).astype(ml_dtypes.bfloat16)
    w = whole(k, n, seed=1).astype(ml_dtypes.bfloat16)
    b = whole(n, seed=2)

    def function(x: Any, w: Any, b: Any) -> Any:
        total = jax.lax.dot(x, w, preferred_element_type=jnp.float32)
        return jnp.maximum(total + b, 0).astype(jnp.bfloat16)

    return Case(f"dense {m}x{n}x{k}", function, (x, w, b))


@on_unit
@pytest.mark.parametrize("sizes", [(64, 64, 64), (37, 53, 101), (130, 17, 66)])
def test_an_epilogue_reads_the_sums(sizes: tuple[int, int, int]) -> None:
    case = dense(*sizes)
    found = space(case, HOST)
    for config in (found.heuristic(), *found.sample(4, np.random.default_rng(3))):
        agrees_with_the_oracle(case, build(case.compute, found.schedule(config), HOST))


@on_unit
def test_kernels_run_beside_others_that_use_the_unit() -> None:
    """Each thread has tiles of its own, and a kernel leaves none configured behind."""
    cases = [product(64, 64, 64, "bf16"), product(37, 45, 29, "bf16"), product(70, 40, 60, "i8")]
    loaded = [loader.load(build(c.compute, first(c, HOST), HOST)) for c in cases]
    pairs = list(zip(loaded, cases, strict=True))
    wanted = [np.asarray(call(x, c, serial(), "before")[0]) for x, c in pairs]
    failures = list[str]()

    def repeat(k: int) -> None:
        for n in range(30):
            which = (k + n) % len(cases)
            (got,) = call(loaded[which], cases[which], threaded(HOST.threads), "before")
            if not np.array_equal(got, wanted[which]):
                failures.append(cases[which].name)

    threads = [threading.Thread(target=repeat, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


# leave to use it --------------------------------------------------------------------------------


def test_what_uses_tiles_says_so_and_is_stored_with_it() -> None:
    case = product(64, 64, 64, "bf16")
    built = build(case.compute, first(case), AMX)
    assert built.tiles
    assert Built.from_bytes(built.to_bytes()) == built


def test_where_the_system_refuses_loading_fails_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    case = product(64, 64, 64, "bf16")
    monkeypatch.setattr(
        "hlotune.codegen.runtime.amx_permission.refusal", lambda: "Operation not permitted"
    )
    with pytest.raises(
        BuildError, match=r"leave to use the matrix unit .* got 'Operation not perm"
    ):
        loader.load(build(case.compute, first(case), AMX))


def test_where_the_system_refuses_a_target_has_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ("amx-bf16", "amx-tile", "avx512f")
    monkeypatch.setattr(host_processor, "features", lambda: known)
    monkeypatch.setattr(targets, "refusal", lambda: "Operation not permitted")
    assert targets._features() == ("avx512f",)
    monkeypatch.setattr(targets, "refusal", lambda: "")
    assert targets._features() == ("amx-bf16", "amx-tile", "avx512f")


def test_the_peak_is_that_of_the_unit() -> None:
    loops = peak_loops(AMX)
    assert [loops[t].tiles for t in ("f32", "bf16", "i8")] == [False, True, True]
    assert loops["i8"].work == 2 * loops["bf16"].work


def test_the_peak_of_the_unit_compiles() -> None:
    for dtype in ("bf16", "i8"):
        assert compile_object(compute_text(peak_loops(AMX)[dtype], 10, 2), AMX)

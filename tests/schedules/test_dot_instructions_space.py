"""Schedules of sums by dot instructions: their space, and the machine code of its candidates."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hlotune.codegen.build import build
from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.dot_instructions.space import dots_space
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import digest, path_of
from hlotune.schedules.features.loop_trees import nodes_of
from hlotune.schedules.features.summary import NAMES, features_of
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.layout import Preload
from hlotune.schedules.targets.cpu import CpuTarget
from tests.codegen.test_contractions import is_right
from tests.schedules.test_dot_instructions import BOTH, CASES, HOST, KINDS, product
from tests.support.computes import Case
from tests.support.contraction_cases import Drawn, contractions

narrow = st.sampled_from(("bf16", "bf16->f32", "i8->i32"))
seeds = st.integers(0, 2**32)
LOADED = Preload("offset")
on_dots = pytest.mark.skipif(
    not {"avx512bf16", "avx512vnni"} <= set(HOST.features), reason="needs dot instructions"
)


def space(case: Case, target: CpuTarget = BOTH) -> CpuSpace:
    found = dots_space(case.compute, target)
    assert found is not None, f"{case} has no dots"
    return found


# the space --------------------------------------------------------------------------------------


def test_the_first_candidate_is_that_of_the_dots() -> None:
    found = space_of(product(64, 64, 64, "bf16").compute, BOTH)
    assert isinstance(found, AlgorithmsSpace)
    algorithms = [found.schedule(c).algorithm for c in found.firsts()]
    assert algorithms == ["dots", "direct"]
    assert found.schedule(found.heuristic()).algorithm == "dots"
    assert found.parts[1].algorithm == "direct"


def nest_of(found: CpuSpace, case: Case, config: NDArray[np.int32]) -> LoopNest | None:
    try:
        return replay(case.compute, found.schedule(config), found.target)
    except ScheduleError:
        return None


def binds(case: Case, found: CpuSpace, configs: Configs) -> None:
    """Arrays say what nests built one by one say."""
    nests = [nest_of(found, case, c) for c in configs]
    np.testing.assert_array_equal(found.legal(configs), [n is not None for n in nests])
    path, features, trees = found.path(configs), found.features(configs), found.nodes(configs)
    c, target, lanes = found.contraction, found.target, found.lanes
    for k, nest in enumerate(nests):
        if nest is not None:
            one = path_of(nest, c)
            assert digest(one) == digest(path)[k]
            row = features_of(c, target, lanes, one, found.work)[0]
            np.testing.assert_allclose(row, features[k], atol=1e-5)
            tree = nodes_of(levels_of(c, target, lanes, one, path.axis.shape[1]), found.work)
            np.testing.assert_allclose(tree.values[0], trees.values[k], atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_arrays_and_nests_agree(name: str) -> None:
    found = space(CASES[name])
    rng = np.random.default_rng(0)
    counts = [len(found.sketches), *found.knobs.counts]
    uniform = rng.integers(counts, size=(20, len(counts)), dtype=np.int32)
    binds(CASES[name], found, np.concatenate([uniform, found.sample(8, rng)]))


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_is_located(name: str) -> None:
    found = space_of(CASES[name].compute, BOTH)
    for config in found.firsts():
        schedule = found.schedule(config)
        again = found.locate(schedule)
        assert again is not None and found.schedule(again) == schedule


def test_groups_do_a_share_of_the_work_that_the_kernel_asks_for() -> None:
    found = space(product(64, 64, 64, "bf16"))
    row = found.features(found.heuristic()[None])[0]
    assert row[NAMES.index("work")] == pytest.approx(-1)


def test_constants_are_packed_in_groups_when_the_program_is_loaded() -> None:
    for kind in KINDS:
        case = product(37, 45, 32, kind, frozen=True)
        found = space(case)
        nest = replay(case.compute, found.schedule(found.heuristic()), BOTH)
        assert nest.stage("a1.packed").scope == "load"


@pytest.mark.parametrize("name", ["i8 37x45x32 mk,kn frozen", "i8 window 7 frozen"])
def test_the_sums_of_constants_are_taken_when_these_are_packed(name: str) -> None:
    case = CASES[name]
    found = space(case)
    schedule = found.schedule(found.heuristic())
    nest = replay(case.compute, schedule, BOTH)
    assert {s.stage.name for s in nest.stages if s.scope == "load"} == {"a1.packed", "offset"}
    made = emit(nest)
    ((argument, _, size),) = made.packed
    sums = 4 * nest.compute.tensor("offset").elements
    assert argument == "a1" and size > sums + nest.compute.tensor("a1").bytes
    in_each_call = replace(schedule, steps=tuple(s for s in schedule.steps if s != LOADED))
    assert made.scratch_bytes < emit(replay(case.compute, in_each_call, BOTH)).scratch_bytes


def test_an_operand_is_put_into_groups_ahead_where_it_is_used_often() -> None:
    def packed(m: int) -> str:
        found = space(product(m, 64, 64, "bf16"))
        return dict(found.sketches[int(found.heuristic()[0])].packs)["a1"]

    assert (packed(2), packed(64)) == ("none", "call")


# machine code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [("bf16", "vdpbf16ps"), ("i8", "vpdpbusd")])
def test_a_tile_is_made_of_the_instruction(kind: str, name: str) -> None:
    case = product(64, 64, 64, kind, frozen=True)
    found = space(case)
    text = assembly(emit(replay(case.compute, found.schedule(found.heuristic()), BOTH)).text, BOTH)
    assert text.count(name) >= 8
    assert "vpmulld" not in text and "vfmadd" not in text


@on_dots
@pytest.mark.parametrize("name", CASES)
def test_the_first_candidate_agrees_with_the_oracle(name: str) -> None:
    """Extreme values, subnormal numbers and sums that wrap among its inputs."""
    case = CASES[name]
    found = space(case, HOST)
    built = build(case.compute, found.schedule(found.heuristic()), HOST)
    verdict = verify(case.kernel, built, thorough=True)
    assert isinstance(verdict, Verdict), verdict


def in_groups(target: CpuTarget) -> st.SearchStrategy[Drawn]:
    """Contractions that have sums in groups."""
    return contractions(narrow).filter(
        lambda drawn: dots_space(drawn.case.compute, target) is not None
    )


def gives_its_numbers(drawn: Drawn, n: int, seed: int) -> None:
    found = space(drawn.case, HOST)
    for config in (found.heuristic(), *found.sample(n, np.random.default_rng(seed))):
        schedule = found.schedule(config)
        is_right(drawn, schedule, build(drawn.case.compute, schedule, HOST))


@on_dots
@settings(max_examples=8)
@given(in_groups(HOST), seeds)
def test_any_sum_in_groups_gives_its_numbers(drawn: Drawn, seed: int) -> None:
    gives_its_numbers(drawn, 3, seed)


@on_dots
@pytest.mark.slow
@settings(max_examples=100)
@given(in_groups(HOST), seeds)
def test_many_schedules_of_sums_in_groups_give_their_numbers(drawn: Drawn, seed: int) -> None:
    gives_its_numbers(drawn, 12, seed)

"""Split reductions: the rewriting, its space, and what is built from it."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax
from numpy.typing import NDArray

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.runtime.loader import load
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.algorithms.split_reduction.rewriting import PART, SplitReduction, named
from hlotune.schedules.algorithms.split_reduction.space import SplitSpace, split_spaces
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_paths import digest, path_of
from hlotune.schedules.features.summary import NAMES, features_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from tests.codegen.test_contractions import HOSTS
from tests.support import faults
from tests.support.computes import Case, call, conv, gemm, whole
from tests.support.contraction_cases import Drawn, contractions

TARGET, HOST = TARGETS["znver4"], host_target()
seeds = st.integers(0, 2**32)


def matvec(rows: int, columns: int) -> Case:
    arguments = whole(rows, columns), whole(columns, seed=1)
    return Case(f"matvec {rows}x{columns}", lambda a, x: a @ x, arguments)


def gradient(rows: int, m: int, n: int) -> Case:
    """The gradient of weights: a long reduction to few results."""
    numbers = ((0,), (0,)), ((), ())

    def function(x: Any, g: Any) -> Any:
        return lax.dot_general(x, g, numbers) + 1

    return Case(f"gradient {rows}: {m}x{n}", function, (whole(rows, m), whole(rows, n, seed=1)))


def taps(channels: int, points: int) -> Case:
    """The gradient of five weights a channel, along which the image lies together as well."""

    def function(x: Any, g: Any) -> Any:
        def depthwise(w: Any) -> Any:
            numbers = ("NCW", "OIW", "NCW")
            return lax.conv_general_dilated(
                x, w, (1,), "SAME", dimension_numbers=numbers, feature_group_count=channels
            )

        return jax.vjp(depthwise, jnp.zeros((channels, 1, 5), x.dtype))[1](g)[0]

    arguments = whole(4, channels, points), whole(4, channels, points, seed=1)
    return Case(f"taps {channels}x{points}", function, arguments)


CASES = {
    "matvec": lambda: matvec(37, 1024),
    "gradient": lambda: gradient(2003, 16, 17),
    "taps": lambda: taps(8, 256),
    "dot": lambda: Case("dot", lambda x, y: x @ y, (whole(4096), whole(4096, seed=1))),
}


def spaces(name: str) -> tuple[SplitSpace, ...]:
    found = split_spaces(CASES[name]().compute, TARGET)
    assert found
    return found


def split_of(compute: Compute, parts: int, lanes: int) -> SplitReduction:
    """Along the longest axis and the last one."""
    reduce = compute.stages[-2].reduce
    longest = max(reduce, key=lambda r: r.extent)
    return SplitReduction(longest.name, parts, reduce[-1].name, lanes)


# numbers ------------------------------------------------------------------------------------------


def is_right(drawn: Drawn, schedule: Schedule) -> None:
    loaded = load(build(drawn.case.compute, schedule, HOST))
    for placement, host in HOSTS:
        (got,) = call(loaded, drawn.case, host(), placement)  # type: ignore[arg-type]
        drawn.check(got, schedule)


@given(contractions(), st.integers(1, 5), st.sampled_from((1, 2, 3, 16, 32)), seeds)
def test_any_split_of_any_contraction_gives_its_numbers(
    drawn: Drawn, parts: int, lanes: int, seed: int
) -> None:
    compute = drawn.case.compute
    assume(len(compute.stages) > 1)
    split = split_of(compute, parts, lanes)
    if split.refusal(compute):
        with pytest.raises(ScheduleError, match="split_reduction"):
            unscheduled(compute, str(split), HOST)
        return
    space = SplitSpace(compute, split, HOST)
    for config in (space.heuristic(), *space.sample(2, np.random.default_rng(seed))):
        is_right(drawn, space.schedule(config))


@pytest.mark.parametrize("name", CASES)
def test_sums_of_parts_stay_inside_the_bound_of_a_plain_sum(name: str) -> None:
    case = CASES[name]()
    references = References(case.kernel)
    for space in split_spaces(case.compute, HOST):
        built = build(case.compute, space.schedule(space.heuristic()), HOST)
        verdict = verify(
            case.kernel, built, numerics="strict", thorough=True, references=references
        )
        assert isinstance(verdict, Verdict), verdict
        assert verdict.numerics == "strict"


def without_the_last_part(nest: LoopNest) -> LoopNest:
    add = nest.stage("sum")
    reduce = (replace(r, extent=r.extent - (r.name == PART)) for r in add.stage.reduce)
    return nest.put(replace(add, stage=replace(add.stage, reduce=tuple(reduce))))


def test_a_part_that_is_lost_is_seen() -> None:
    """The sum at the end leaves out the last part."""
    case = gradient(512, 4, 16)
    space = SplitSpace(case.compute, split_of(case.compute, 4, 1), faults.TARGET)
    schedule, references = space.schedule(space.heuristic()), References(case.kernel)
    nest = replay(case.compute, schedule, faults.TARGET)

    def outcome(nest: LoopNest) -> Verdict | Failure:
        emitted = emit(nest)
        built = faults.machine_code(case, emitted.text, emitted)
        built = replace(built, algorithm=schedule.algorithm)
        return verify(case.kernel, built, references=references)

    assert isinstance(outcome(nest), Verdict)
    found = outcome(without_the_last_part(nest))
    assert isinstance(found, Failure) and found.kind == "wrong_result", found


# the space ----------------------------------------------------------------------------------------


def nest_of(space: SplitSpace, config: NDArray[np.int32]) -> LoopNest | None:
    try:
        return replay(space.original, space.schedule(config), space.target)
    except ScheduleError:
        return None


def binds(space: SplitSpace, configs: Configs) -> None:
    nests = [nest_of(space, c) for c in configs]
    np.testing.assert_array_equal(space.legal(configs), [n is not None for n in nests])
    digests, features = space.digest(configs), space.features(configs)
    for k, nest in enumerate(nests):
        if nest is None:
            continue
        one = path_of(nest, space.contraction)
        assert digest(one) == digests[k]
        found = features_of(space.contraction, TARGET, space.lanes, one, space.work)[0]
        pairs = zip(NAMES, found, features[k], strict=True)
        assert [name for name, a, b in pairs if abs(a - b) > 1e-5] == []


def drawn_configs(space: SplitSpace, n: int, seed: int) -> Configs:
    rng = np.random.default_rng(seed)
    return rng.integers(space.counts, size=(n, len(space.counts)), dtype=np.int32)


@pytest.mark.parametrize("name", CASES)
def test_arrays_say_what_nests_built_one_by_one_say(name: str) -> None:
    for space in spaces(name):
        sampled = space.sample(10, np.random.default_rng(0))
        binds(space, np.concatenate([drawn_configs(space, 10, 0), sampled]))
        assert space.legal(sampled).all()


@settings(max_examples=5)
@given(contractions(), st.integers(2, 4), seeds)
def test_arrays_and_nests_agree_for_any_contraction(drawn: Drawn, parts: int, seed: int) -> None:
    compute = drawn.case.compute
    split = split_of(compute, parts, 1)
    assume(not split.refusal(compute))
    space = SplitSpace(compute, split, TARGET)
    binds(space, drawn_configs(space, 5, seed))


@pytest.mark.parametrize("name", CASES)
def test_locating_a_schedule_of_the_space_gives_it_back(name: str) -> None:
    for space in spaces(name):
        for config in (space.heuristic(), *space.sample(10, np.random.default_rng(5))):
            schedule = space.schedule(config)
            found = space.locate(Schedule.from_json(schedule.to_json()))
            assert found is not None
            assert space.schedule(found) == schedule


def test_lanes_go_along_a_reduction_where_no_whole_vector_fits_elsewhere() -> None:
    assert any(space.split.lanes == 16 for space in spaces("taps"))


def test_lanes_of_a_result_come_together_in_registers() -> None:
    space = next(s for s in spaces("matvec") if s.split.lanes == 16)
    add = replay(space.original, space.schedule(space.heuristic()), TARGET).stage("sum")
    assert add.reduces_lanes


def test_schedules_of_other_algorithms_are_not_located() -> None:
    one, *others = spaces("dot")
    assert one.locate(DEFAULT) is None
    assert all(one.locate(s.schedule(s.heuristic())) is None for s in others)


# which splits are tried ---------------------------------------------------------------------------


def splits(case: Case) -> list[str]:
    return [str(s.split) for s in split_spaces(case.compute, TARGET)]


def test_long_reductions_to_few_results_are_split_over_the_threads() -> None:
    compute = gradient(20_000, 16, 16).compute
    assert splits(gradient(20_000, 16, 16)) == ["split_reduction(r0, 2, r0, 1)"]
    space = space_of(compute, TARGET)
    assert isinstance(space, AlgorithmsSpace)
    keep = replay(compute, space.schedule(space.heuristic()), TARGET).stage("parts")
    tasks = zip(keep.loops, keep.trips(keep.stage.extents), strict=True)
    assert {x.root: n for x, n in tasks if x.kind == "parallel" and n > 1} == {"p0": 2}


def test_rows_of_a_matrix_times_a_vector_are_read_in_vectors_along_the_reduction() -> None:
    assert "split_reduction(r0, 1, r0, 16)" in splits(matvec(4096, 4096))
    space = split_spaces(matvec(4096, 4096).compute, TARGET)[0]
    nest = replay(space.original, space.schedule(space.heuristic()), TARGET)
    assert nest.stage("contract").vector_root == "l0"


def test_a_single_sum_gets_several_vectors_that_do_not_wait_for_one_another() -> None:
    assert "split_reduction(r0, 1, r0, 128)" in splits(CASES["dot"]())


@pytest.mark.parametrize("case", [gemm(512, 512, 512), gemm(1, 4096, 4096), conv(28, 28, 16, 32)])
def test_products_with_enough_results_are_not_split(case: Case) -> None:
    assert splits(case) == [] or case.name.startswith("gemm 1x")
    if not splits(case):
        assert isinstance(space_of(case.compute, TARGET, "strict"), CpuSpace)


# names and refusals -------------------------------------------------------------------------------


def test_a_name_gives_its_split_back() -> None:
    split = SplitReduction("r1", 4, "r0", 32)
    assert named(str(split)) == split
    assert named("direct") is None
    assert named("split_reduction(r0)") is None


@pytest.mark.parametrize(
    ("split", "wanted"),
    [
        (SplitReduction("r7", 2, "r7", 1), "expected a reduction along one of .*, got 'r7'"),
        (SplitReduction("r0", 1, "r0", 1), "expected 2 to 20 pieces of r0, got 1"),
        (SplitReduction("r0", 2, "r0", 16), "expected 2 to 20 pieces of r0, got 32"),
    ],
)
def test_a_split_that_does_not_apply_says_why(split: SplitReduction, wanted: str) -> None:
    with pytest.raises(ScheduleError, match=wanted):
        unscheduled(gemm(4, 4, 20).compute, str(split), TARGET)


def test_a_window_that_goes_on_beyond_its_axis_is_not_cut_unevenly() -> None:
    """Beyond the window the image goes on, and weights of zero would meet what lies there."""
    compute = conv(8, 8, 3, 16, pad=0).compute
    taps = compute.stages[-2].reduce[0].name
    with pytest.raises(ScheduleError, match="no multiple of 2, and loads go on beyond"):
        unscheduled(compute, str(SplitReduction(taps, 2, taps, 1)), TARGET)


def test_a_kernel_that_is_no_contraction_is_refused() -> None:
    compute = gemm(4, 4, 20).compute
    with pytest.raises(ScheduleError, match="expected a sum that the last stage reads point by"):
        SplitReduction("r0", 2, "r0", 1)(Compute(compute.tensors, compute.stages[-1:]))

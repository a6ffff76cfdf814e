"""The space of a contraction: arrays of configs and nests built one by one say the same."""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms import joined_space
from hlotune.schedules.algorithms.algorithm import AlgorithmSpace
from hlotune.schedules.algorithms.amx.space import MatrixSpace
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.split_reduction.space import SplitSpace
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_paths import digest, path_of
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_contraction import space as cpu
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.moves import with_random_tiles
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import REAL, SMALL, Case, named, whole
from tests.support.contraction_cases import Drawn, contractions
from tests.support.row_facts import row_of
from tests.support.tree import ROOT

AVX2, AVX512 = TARGETS["x86-64-v3"], TARGETS["znver4"]
ALL = (*REAL, *SMALL)
targets = st.sampled_from(tuple(TARGETS.values()))
seeds = st.integers(0, 2**32)


def space_of(name: str) -> CpuSpace:
    return named(name).space(AVX512)


def drawn(space: CpuSpace, n: int, seed: int) -> Configs:
    """Configs uniform in every knob, register tiles that do not fit among them."""
    rng = np.random.default_rng(seed)
    configs = np.empty((n, 1 + len(space.knobs.knobs)), dtype=np.int32)
    configs[:, 0] = rng.integers(len(space.sketches), size=n)
    configs[:, 1:] = rng.integers(space.knobs.counts, size=(n, len(space.knobs.knobs)))
    return np.concatenate([configs[: n // 2], with_random_tiles(space, configs[n // 2 :], rng)])


def nest_of(space: CpuSpace, config: NDArray[np.int32]) -> LoopNest | None:
    try:
        return replay(space.contraction.compute, space.schedule(config), space.target)
    except ScheduleError:
        return None


def binds_legality(space: CpuSpace, configs: Configs) -> None:
    replays = [nest_of(space, c) is not None for c in configs]
    np.testing.assert_array_equal(space.legal(configs), replays)


def binds_features(space: CpuSpace, configs: Configs) -> None:
    """Columns are those of `row_facts`, which knows nothing of arrays; digests those of paths."""
    got, digests = space.features(configs), space.digest(configs)
    for k, config in enumerate(configs):
        nest = nest_of(space, config)
        assert nest is not None
        wanted = dict.fromkeys(NAMES, 0.0) | row_of(space.contraction, nest, space.lanes)
        wrong = {
            name: (float(value), wanted[name])
            for name, value in zip(NAMES, got[k], strict=True)
            if not np.isclose(value, wanted[name], rtol=1e-4, atol=1e-3)
        }
        assert not wrong, (wrong, space.schedule(config).to_json())
        assert set(wanted) == set(NAMES)
        assert digest(path_of(nest, space.contraction)) == digests[k]


@pytest.mark.parametrize("name", (*ALL, "frozen row"))
def test_a_config_is_legal_where_its_schedule_replays(name: str) -> None:
    space = space_of(name)
    configs = drawn(space, 80, 0)
    binds_legality(space, configs)
    assert 0 < space.legal(configs).mean() < 1  # else the test would say nothing


@pytest.mark.parametrize("name", ALL)
def test_a_position_that_a_knob_does_not_have_is_not_legal(name: str) -> None:
    space = space_of(name)
    config = space.heuristic()
    beyond = np.where(np.eye(len(config), dtype=bool), space.counts, config).astype(np.int32)
    below = np.where(np.eye(len(config), dtype=bool), -1, config).astype(np.int32)
    assert space.legal(config[None]).all()
    assert not space.legal(np.concatenate([beyond, below])).any()


def of_all_kinds() -> list[AlgorithmSpace | AlgorithmsSpace]:
    """Direct, split, Winograd's, dots, those of a matrix unit, and several together."""
    halves = jnp.ones((64, 64), jnp.bfloat16)
    cases = (
        (named("C9"), "znver4"),
        (Case("matvec", jnp.dot, (whole(37, 1024), whole(1024))), "znver4"),
        (Case("halves", jnp.dot, (halves, halves)), "sapphirerapids"),
    )
    found = [joined_space.space_of(case.compute, TARGETS[name]) for case, name in cases]
    parts = [part for x in found if isinstance(x, AlgorithmsSpace) for part in x.parts]
    kinds = {type(x) for x in (*found, *parts)}
    assert kinds == {AlgorithmsSpace, CpuSpace, SplitSpace, WinogradSpace, MatrixSpace}
    return [*found, *parts]


def test_in_no_kind_of_space_is_such_a_position_legal() -> None:
    """Searchers cross configs, and ask each kind the same."""
    for space in of_all_kinds():
        config = space.heuristic()
        one = np.eye(len(config), dtype=bool)
        strange = np.concatenate([np.where(one, n, config) for n in (-1, 99_999)]).astype(np.int32)
        assert space.legal(config[None]).all()
        assert not space.legal(strange).any(), type(space)


@pytest.mark.parametrize("name", (*ALL, "frozen row"))
def test_features_of_arrays_are_those_of_nests_built_one_by_one(name: str) -> None:
    space = space_of(name)
    binds_features(space, space.sample(20, np.random.default_rng(0)))


@pytest.mark.parametrize(
    "case",
    [
        Case("an array times itself", lambda x: x @ x.T, (whole(40, 64),)),
        Case("one product", lambda x, w: jnp.dot(x, w), (whole(1), whole(1, seed=1))),
    ],
    ids=repr,
)
def test_features_of_a_contraction_without_operands_are_those_of_its_nests(case: Case) -> None:
    """What is loaded twice, or has no axis, can not be packed."""
    space = case.space(AVX512)
    assert not space.contraction.operands
    binds_features(space, space.sample(20, np.random.default_rng(0)))


@given(contractions(), targets, seeds)
def test_arrays_and_nests_agree_for_any_contraction(
    case: Drawn, target: CpuTarget, seed: int
) -> None:
    space = case.case.space(target)
    binds_legality(space, drawn(space, 10, seed))
    binds_features(space, space.sample(4, np.random.default_rng(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "target", [AVX2, AVX512, TARGETS["x86-64"], TARGETS["aarch64"]], ids=lambda t: t.name
)
def test_arrays_and_nests_agree_on_many_configs(name: str, target: CpuTarget) -> None:
    space = named(name).space(target)
    binds_legality(space, drawn(space, 1000, 1))
    binds_features(space, space.sample(300, np.random.default_rng(1)))


def work(nest: LoopNest | None) -> tuple[tuple[int, str], ...]:
    """What is done inside how many loops, in any order; loops of one iteration do not count.

    Nor does it count which of two loops along one axis is peeled: the same tiles are written apart.
    """
    result, empty = [], list[int]()
    for line in str(nest).split("\n"):
        text = line.lstrip().removesuffix(" peel")
        depth = len(line) - len(line.lstrip())
        empty = [d for d in empty if d < depth]
        if "x1" in text.split():
            empty.append(depth)
        else:
            result.append((depth - 2 * len(empty), re.sub(r"^(\w+ \w+)\.\d", r"\1", text)))
    return tuple(sorted(result))


@pytest.mark.parametrize("name", (*SMALL, "frozen row"))
def test_equal_nests_have_equal_digests_and_different_work_has_different_ones(name: str) -> None:
    space, rng = space_of(name), np.random.default_rng(3)
    configs = space.sample(40, rng)
    configs = np.concatenate(
        [configs, space.neighbours(configs, rng), space.neighbours(configs, rng)]
    )
    nests = [nest_of(space, c) for c in configs]
    by_nest: dict[LoopNest | None, int] = {}
    by_digest: dict[int, tuple[tuple[int, str], ...]] = {}
    for nest, digest_ in zip(nests, map(int, space.digest(configs)), strict=True):
        assert by_nest.setdefault(nest, digest_) == digest_
        assert by_digest.setdefault(digest_, work(nest)) == work(nest)
    assert len(by_digest) < len(by_nest) < len(configs)  # both directions were tried


@pytest.mark.parametrize("name", (*ALL, "frozen row"))
def test_locating_a_schedule_of_the_space_gives_its_nest(name: str) -> None:
    space = space_of(name)
    configs = space.sample(40, np.random.default_rng(5))
    for config in (space.heuristic(), *configs):
        found = space.locate(space.schedule(config))
        assert found is not None
        assert space.schedule(found) == space.schedule(config)
        assert space.digest(found[None]) == space.digest(config[None])


def test_a_schedule_of_another_shape_and_machine_is_located_near() -> None:
    source, target = named("C6").space(AVX2), named("C2").space(AVX512)
    found = [target.locate(source.schedule(c)) for c in source.sample(60, np.random.default_rng(0))]
    known = [c for c in found if c is not None]
    assert len(known) > 40
    assert target.legal(np.stack(known)).all()


@pytest.mark.parametrize("schedule", [DEFAULT, Schedule("direct"), Schedule("winograd(4)")])
def test_a_schedule_without_a_sketch_here_is_not_located(schedule: Schedule) -> None:
    assert space_of("small gemm").locate(schedule) is None


@pytest.mark.parametrize("name", ALL)
def test_neighbours_are_legal_and_mostly_differ(name: str) -> None:
    space, rng = space_of(name), np.random.default_rng(7)
    configs = space.sample(300, rng)
    near = space.neighbours(configs, rng)
    assert near.shape == configs.shape
    assert space.legal(near).all()
    assert (near != configs).any(axis=1).mean() > 0.97
    assert (space.digest(near) != space.digest(configs)).mean() > 0.55
    assert np.median((near != configs).sum(axis=1)) <= 2


@pytest.mark.parametrize("name", ["C9", "small conv"])
def test_the_same_generator_gives_the_same_configs(name: str) -> None:
    space = space_of(name)

    def run(seed: int) -> Configs:
        rng = np.random.default_rng(seed)
        return space.neighbours(space.sample(50, rng), rng)

    np.testing.assert_array_equal(run(1), run(1))
    assert (run(1) != run(2)).any()


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("algorithms", [cpu.space_of, joined_space.space_of], ids=["direct", "all"])
def test_a_thousand_samples_are_legal_and_nearly_all_different(
    name: str, algorithms: Callable[[Compute, CpuTarget], CpuSpace | AlgorithmsSpace]
) -> None:
    space = algorithms(named(name).compute, AVX512)
    configs = space.sample(1000, np.random.default_rng(11))
    assert configs.shape == (1000, len(space.heuristic()))
    assert configs.dtype == np.int32
    assert space.legal(configs).mean() >= 0.95
    assert len(np.unique(space.digest(configs))) >= 990


@pytest.mark.parametrize("name", ["C2", "C6", "C9"])
def test_the_space_of_a_convolution_of_resnet_is_large(name: str) -> None:
    assert space_of(name).size > 1e9


@pytest.mark.parametrize("name", ALL)
def test_every_value_of_every_knob_is_legal_somewhere(name: str) -> None:
    """But for register tiles, which are a joint limit: each is legal near some other config."""
    space, rng = space_of(name), np.random.default_rng(13)
    base = np.concatenate([space.heuristic()[None], space.sample(20, rng)])
    registers = {1 + c for c in space.knobs.columns("register")}
    for column, count in enumerate((len(space.sketches), *space.knobs.counts)):
        if column not in registers:
            tried = np.tile(base, (int(count), 1))
            tried[:, column] = np.repeat(np.arange(count), len(base))
            alive = space.legal(tried).reshape(count, -1).any(axis=1)
            assert alive.all(), (column, np.flatnonzero(~alive))


@pytest.mark.parametrize("name", ALL)
def test_register_tiles_are_drawn_among_those_that_fit(name: str) -> None:
    space = space_of(name)
    for vector, tiles in space.tiles.items():
        column = [a.name for a in space.contraction.parallel].index(vector)
        needed = (tiles + 1).prod(axis=1) + tiles[:, column] + 2
        assert needed.max() == space.target.vector_registers
        assert len(np.unique(tiles, axis=0)) == len(tiles)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_the_lanes_are_those_of_the_target(target: CpuTarget) -> None:
    space = named("small gemm").space(target)
    assert space.lanes == target.vector_bytes // 4


PROPOSALS = """
import numpy as np
from hlotune.measure.machine.targets import TARGETS
from tests.support.computes import Case, whole
case = Case("columns", lambda x, w: x.T @ w, (whole(24, 40), whole(24, 56)))
space, rng = case.space(TARGETS["znver4"]), np.random.default_rng(0)
print(space.heuristic().tolist(), space.neighbours(space.sample(64, rng), rng).tolist())
"""


def test_the_same_seed_proposes_the_same_in_every_process() -> None:
    """Sets of strings have another order in each."""
    found = {
        subprocess.run(
            [sys.executable, "-c", PROPOSALS], cwd=ROOT, check=True, capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1

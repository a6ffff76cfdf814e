"""Windows that roll along a register tile: each element is loaded once, sums stay as they are."""

from collections.abc import Sequence
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.idioms.window_reuse import rolled
from hlotune.codegen.llvm.unrolled_copies import Copy, copies
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import Loop, StageNest
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.window_reuse import distinct, rolling
from hlotune.schedules.targets.machine_rates import MachineRates
from tests.support.computes import Case, conv, depthwise, named, planes, tiled

AVX512 = TARGETS["znver4"]


def window(rows: int, taps: int, *, step: int = 1, tap: int = 1, beside: int = 1) -> StageNest:
    """`y[i, c] = sum over r of x[step i + tap r, c] w[r, c]`, all of it written out in vectors."""
    i, r, c = Affine.axis("i"), Affine.axis("r"), Affine.axis("c")
    low = min(0, tap * (taps - 1))
    loads = Load("x", (i * step + r * tap + -low, c), "f32"), Load("w", (r, c), "f32")
    stage = Stage(
        "s", (Axis("i", rows), Axis("c", 4 * beside)), (Axis("r", taps),),
        (Store("y", (i, c)),), (Apply("multiply", loads, "f32"),), SUM,
    )  # fmt: skip
    loops = (
        Loop("r", "r", 1, "unroll"), Loop("i", "i", 1, "unroll"),
        Loop("c.0", "c", 4, "unroll"), Loop("c.1", "c", 1, "vectorize"),
    )  # fmt: skip
    return StageNest(stage, loops, accumulate="")


def plane(rows: int, columns: int, order: str) -> StageNest:
    """`y[i, j, c] = sum over q, r of x[i + q, j + r, c] w[q, r, c]` with taps of 3x3."""
    i, j, q, r, c = map(Affine.axis, "ijqrc")
    loads = Load("x", (i + q, j + r, c), "f32"), Load("w", (q, r, c), "f32")
    stage = Stage(
        "s", (Axis("i", rows), Axis("j", columns), Axis("c", 4)), (Axis("q", 3), Axis("r", 3)),
        (Store("y", (i, j, c)),), (Apply("multiply", loads, "f32"),), SUM,
    )  # fmt: skip
    loops = *(Loop(a, a, 1, "unroll") for a in f"{order}ij"), Loop("c", "c", 1, "vectorize")
    return StageNest(stage, loops, accumulate="")


def written(s: StageNest) -> tuple[Copy, ...]:
    return copies(s, 0, s.stage.extents)


def at(copy: Copy, axes: str) -> tuple[int, ...]:
    return tuple(copy.offsets[a] for a in axes)


def places(found: Sequence[Copy]) -> list[list[tuple[int, int]]]:
    """Rows and taps of the copies, from fence to fence."""
    parts = list[list[tuple[int, int]]]()
    for copy in found:
        if copy.fences or copy.rolls:
            parts.append([])
        parts[-1].append((copy.offsets["i"], copy.offsets["r"]))
    return parts


def test_taps_meet_an_element_one_after_the_other() -> None:
    s = window(4, 3)
    assert places(written(s)) == [[(i, r) for i in range(4)] for r in range(3)]
    assert places(rolled(written(s), s, 32)) == [
        [(0, 0)],
        [(1, 0), (0, 1)],
        [(2, 0), (1, 1), (0, 2)],
        [(3, 0), (2, 1), (1, 2)],
        [(3, 1), (2, 2)],
        [(3, 2)],
    ]


def test_one_fence_stands_ahead_of_all_and_lets_no_value_through() -> None:
    s = window(4, 3)
    found = rolled(written(s), s, 32)
    assert [c.fences for c in found] == [1, *[0] * 11]
    assert sum(c.rolls for c in found) == 5


def test_a_window_that_is_walked_backwards_rolls_backwards() -> None:
    s = window(3, 3, tap=-1)
    assert places(rolled(written(s), s, 32))[:2] == [[(2, 0)], [(1, 0), (2, 1)]]


def test_vectors_that_share_no_tap_are_taken_one_by_one() -> None:
    s = window(4, 3, beside=2)
    found = rolled(written(s), s, 32)
    assert [c.fences for c in found] == [1, *[0] * 11, 1, *[0] * 11]
    assert [c.offsets["c"] for c in found] == [0] * 12 + [4] * 12


@pytest.mark.parametrize(
    ("s", "registers"),
    ((window(4, 3), 7), (window(4, 3, step=3), 32), (window(1, 3), 32)),
    ids=("too few registers", "nothing shared", "one row"),
)
def test_copies_stay_as_they_are_where_nothing_is_won(s: StageNest, registers: int) -> None:
    assert rolled(written(s), s, registers) == written(s)


def test_copies_that_do_not_wait_for_loads_stay_as_they_are() -> None:
    """In a dense convolution vectors of features share what is loaded of the image."""
    case = conv(12, 12, 16, 64)
    schedule = tiled(case, AVX512, register={"i1": 6, "i2": 4}, unroll={"r0": 3, "r1": 3})
    nest = replay(case.compute, schedule, AVX512)
    s = next(s for s in nest.stages if s.stage.name == "contract")
    found = copies(s, s.written_out, {"i0": 1, "i1": 6, "i2": 64, "r0": 3, "r1": 3, "r2": 1})
    assert rolled(found, s, 32) == found


@given(
    st.integers(1, 6), st.integers(1, 5), st.integers(1, 3), st.sampled_from((1, 2, -1, -2)),
    st.integers(1, 3), st.integers(6, 40),
)  # fmt: skip
def test_each_sum_adds_up_its_terms_in_the_same_order(
    rows: int, taps: int, step: int, tap: int, beside: int, registers: int
) -> None:
    s = window(rows, taps, step=step, tap=tap, beside=beside)
    before, after = written(s), rolled(written(s), s, registers)
    for i, c in product(range(rows), range(0, 4 * beside, 4)):
        terms = [
            [x.offsets["r"] for x in found if (x.offsets["i"], x.offsets["c"]) == (i, c)]
            for found in (before, after)
        ]
        assert terms[0] == terms[1] == list(range(taps))


@pytest.mark.parametrize("order", ("qr", "rq"))
@pytest.mark.parametrize("registers", (16, 32))
@pytest.mark.parametrize(("rows", "columns"), ((4, 1), (1, 4), (3, 3), (2, 5)))
def test_terms_of_two_windows_stay_in_order(
    rows: int, columns: int, registers: int, order: str
) -> None:
    s = plane(rows, columns, order)
    before, after = written(s), rolled(written(s), s, registers)
    for i, j in product(range(rows), range(columns)):
        terms = [
            [
                (x.offsets["q"], x.offsets["r"])
                for x in found
                if (x.offsets["i"], x.offsets["j"]) == (i, j)
            ]
            for found in (before, after)
        ]
        assert terms[0] == terms[1]


def test_a_window_whose_channels_stand_inside_its_taps_does_not_roll() -> None:
    """To share what taps meet, each channel would come with all of its taps at once."""
    i, r, k, c = map(Affine.axis, "irkc")
    loads = Load("x", (i + r, k, c), "f32"), Load("w", (r, k, c), "f32")
    stage = Stage(
        "s", (Axis("i", 4), Axis("c", 4)), (Axis("r", 3), Axis("k", 2)),
        (Store("y", (i, c)),), (Apply("multiply", loads, "f32"),), SUM,
    )  # fmt: skip
    loops = *(Loop(a, a, 1, "unroll") for a in "rki"), Loop("c", "c", 1, "vectorize")
    s = StageNest(stage, loops, accumulate="")
    assert rolled(written(s), s, 32) == written(s)


def test_fences_stand_between_elements_so_that_none_is_loaded_early() -> None:
    case = depthwise(12, 12, 16)
    schedule = tiled(case, AVX512, register={"i1": 6}, unroll={"r0": 3, "r1": 3})
    text = emit(replay(case.compute, schedule, AVX512)).text
    assert max(block.count("asm sideeffect") for block in text.split("\nloop")) == 3 * (6 + 2)


@pytest.mark.parametrize(
    ("case", "register", "loads"),
    (
        (depthwise(12, 12, 16), {"i1": 6}, 3 * (6 + 2) + 9 + 1),
        (depthwise(12, 12, 32), {"i1": 4, "i2": 2}, 2 * (3 * (4 + 2) + 9 + 1)),
        (
            conv(13, 13, 16, 16, groups=16, stride=2, pad=0),
            {"i1": 6},
            3 * (2 * 6 + 1) + 9 + 1,
        ),
        (planes(12, 16, 4, 4, groups=4), {"i1": 6}, 3 * (6 + 2)),
    ),
    ids=repr,
)
def test_a_depthwise_tile_loads_each_element_tap_and_bias_once(
    case: Case, register: dict[str, int], loads: int
) -> None:
    schedule = tiled(case, AVX512, register=register, unroll={"r0": 3, "r1": 3})
    text = emit(replay(case.compute, schedule, AVX512)).text
    blocks = [b.count("load <16 x float>") + b.count("masked.load") for b in text.split("\nloop")]
    assert max(blocks) == loads


DEPTHWISE = (
    named("small depthwise"), depthwise(16, 19, 37), planes(9, 18, 6, 6, groups=6),
    conv(11, 13, 24, 24, groups=24, stride=2), conv(10, 9, 20, 20, groups=20, window=5, pad=2),
    conv(9, 9, 18, 18, groups=18, window=7, pad=3), conv(9, 9, 20, 40, groups=20),
)  # fmt: skip


@pytest.mark.parametrize("count", (6, pytest.param(60, marks=pytest.mark.slow)))
@pytest.mark.parametrize("case", DEPTHWISE, ids=repr)
def test_depthwise_schedules_are_right(
    case: Case, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = host_target()
    space, references = case.space(target), References(case.kernel)
    configs = [space.heuristic(), *space.sample(count, np.random.default_rng(4))]
    rolls: list[bool] = []

    def counted(
        found: tuple[Copy, ...], s: StageNest, registers: int, rates: MachineRates
    ) -> tuple[Copy, ...]:
        result = rolled(found, s, registers, rates)
        rolls.append(result != found)
        return result

    monkeypatch.setattr("hlotune.codegen.llvm.loops.rolled", counted)
    for schedule in map(space.schedule, configs):
        verdict = verify(case.kernel, build(case.compute, schedule, target), references=references)
        assert isinstance(verdict, Verdict), f"{verdict}\n{schedule}"
    assert any(rolls)


# the first candidate ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "vector", "last"),
    (
        (depthwise(12, 12, 32), "i2", "r1"),
        (planes(12, 16, 4, 4, groups=4), "i2", "r0"),
        (conv(12, 12, 16, 64), "i2", None),
    ),
    ids=repr,
)
def test_the_taps_that_rows_share_are_innermost(case: Case, vector: str, last: str | None) -> None:
    found = rolling(contraction(case.compute), vector)
    assert (found.name if found else None) == last


@pytest.mark.parametrize(
    ("rows", "taps", "step", "tap", "elements"),
    ((4, 3, 1, 1, 6), (4, 3, 2, 1, 9), (4, 3, 3, 1, 12), (4, 3, 1, 2, 8), (4, 3, 1, -1, 6)),
)
def test_neighbours_share_what_their_windows_have_in_common(
    rows: int, taps: int, step: int, tap: int, elements: int
) -> None:
    assert distinct(rows, taps, step, tap) == elements / (rows * taps)


@pytest.mark.parametrize("case", (depthwise(56, 56, 128), planes(28, 28, 64, 64, groups=64)))
def test_a_first_candidate_leaves_registers_for_what_rolls(case: Case) -> None:
    space = case.space(AVX512)
    tiling = space.tiling(space.heuristic())
    assert 8 <= np.prod(list(tiling.register.values())) <= AVX512.vector_registers // 2


@pytest.mark.parametrize(
    ("case", "order", "unroll"),
    (
        (depthwise(12, 12, 32), ("r0", "r1"), {"r0": 3, "r1": 3}),
        (planes(12, 16, 4, 4, groups=4), ("r1", "r0"), {"r0": 3, "r1": 3}),
        (conv(14, 14, 32, 32, groups=32, window=7, pad=3), ("r0", "r1"), {"r0": 1, "r1": 7}),
    ),
    ids=repr,
)
def test_taps_of_a_first_candidate_are_written_out_in_the_order_in_which_they_roll(
    case: Case, order: tuple[str, ...], unroll: dict[str, int]
) -> None:
    space = case.space(AVX512)
    tiling = space.tiling(space.heuristic())
    assert (tiling.reduce_order, tiling.unroll) == (order, unroll)


@pytest.mark.parametrize(
    ("case", "tile"),
    (
        (depthwise(112, 112, 32), {"i0": 3, "i1": 4, "i2": 1}),
        (planes(112, 112, 32, 32, groups=32), {"i0": 1, "i1": 2, "i2": 7}),
        (planes(14, 14, 512, 512, groups=512), {"i0": 1, "i1": 14, "i2": 1}),
    ),
    ids=repr,
)
def test_tiles_of_first_candidates_are_those_that_were_among_the_fastest(
    case: Case, tile: dict[str, int]
) -> None:
    """On a Zen 4: of vectors of channels twelve sums that share rows and columns, of those along
    the rows of planes sixteen, not of more rows than it follows at a time."""
    space = case.space(AVX512)
    assert space.tiling(space.heuristic()).register == tile

"""Copies turned in registers, and vectors picked out of runs: the same numbers without gathers."""

from typing import Any

import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case, conv, planes, whole

AVX512 = TARGETS["znver4"]


def packed(case: Case, level: str, target: CpuTarget = AVX512) -> Schedule:
    """Vectors along the features, weights packed in panels of two vectors."""
    space = case.space(target)
    config = space.heuristic().copy()
    wanted = Sketch("i0", False, (("a0", "none"), ("a1", level)))
    config[0] = space.sketches.index(wanted)
    rows = [
        k for k, n in enumerate(space.knobs.knobs, 1) if n.kind == "register" and n.axis != "i0"
    ]
    while not space.legal(config[None])[0]:  # the tile was chosen for another form
        config[max(rows, key=lambda k: config[k])] -= 1
    return space.schedule(config)


def is_right(case: Case, schedule: Schedule) -> None:
    built = build(case.compute, schedule, host_target())
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


@pytest.mark.parametrize("level", ["call", "task"])
@pytest.mark.parametrize(("channels", "features"), [(16, 32), (5, 19), (2, 17), (7, 3), (1, 40)])
def test_weights_packed_across_their_rows_are_right(
    channels: int, features: int, level: str
) -> None:
    """Rows of 9 times the channels: whole squares, squares with a rest, and none."""
    case = planes(6, 5, channels, features)
    is_right(case, packed(case, level, host_target()))


def test_a_region_that_reaches_over_the_end_of_its_tensor_is_not_read_beyond() -> None:
    """Tasks of two tiles of two vectors each, and only five tiles: the last one has half of it."""
    case = planes(6, 5, 16, 80)
    space = case.space(host_target())
    config = space.heuristic().copy()
    config[0] = space.sketches.index(Sketch("i0", False, (("a0", "none"), ("a1", "task"))))
    for column, trips in (("register i0", 2), ("group i0", 2), ("block i0", 1)):
        place = next(n for n, knob in enumerate(space.knobs.knobs) if knob.name == column)
        config[1 + place] = space.knobs.knobs[place].values.index(trips)
    assert space.legal(config[None])[0]
    is_right(case, space.schedule(config))


def image_copied(case: Case, level: str, target: CpuTarget) -> Schedule:
    """Vectors along the width, the image copied with its padding."""
    space = case.space(target)
    config = space.heuristic().copy()
    config[0] = space.sketches.index(Sketch("i1", False, (("a0", level), ("a1", "none"))))
    assert space.legal(config[None])[0]
    return space.schedule(config)


@pytest.mark.parametrize("level", ["call", "task", "block"])
@pytest.mark.parametrize(("width", "channels"), [(20, 16), (9, 20), (33, 40)])
def test_an_image_that_is_copied_with_its_padding_is_turned_too(
    width: int, channels: int, level: str
) -> None:
    """With so few features vectors go along the width; rows of a square are places there."""
    case = conv(6, width, channels, 3)
    is_right(case, image_copied(case, level, host_target()))
    text = emit(replay(case.compute, image_copied(case, level, AVX512), AVX512)).text
    assert "shufflevector <16 x float>" in text
    assert "gather" not in text


def test_rows_as_long_as_a_vector_are_turned_and_not_gathered() -> None:
    case = planes(6, 5, 16, 32)
    text = emit(replay(case.compute, packed(case, "call"), AVX512)).text
    assert "shufflevector" in text
    assert "llvm.masked.gather" not in text


def test_rows_shorter_than_a_vector_are_gathered() -> None:
    case = planes(6, 5, 1, 32)
    text = emit(replay(case.compute, packed(case, "call"), AVX512)).text
    assert "llvm.masked.gather" in text


def strided(stride: int, width: int) -> Case:
    """A depthwise convolution along planes, whose vectors go in strides or backwards."""
    x, w = whole(1, 3, 4, width), whole(3, 1, 3, 3, seed=1)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, stride), [(1, 1)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=3,
        )  # fmt: skip

    return Case(f"strided {stride} {width}", function, (x, w))


def along_width(case: Case, target: CpuTarget = AVX512) -> Schedule:
    space = case.space(target)
    config = space.heuristic().copy()
    config[0] = next(
        k
        for k, s in enumerate(space.sketches)
        if s.vector == "i2" and not s.chunked and {level for _, level in s.packs} == {"none"}
    )
    return space.schedule(config)


@pytest.mark.parametrize("width", [11, 16, 31, 33, 70, 131])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_vectors_in_strides_are_right(stride: int, width: int) -> None:
    case = strided(stride, width)
    is_right(case, along_width(case, host_target()))


def test_small_strides_need_no_gathers() -> None:
    gathers = {}
    for stride in (2, 4, 5):
        case = strided(stride, 64 * stride)
        text = emit(replay(case.compute, along_width(case), AVX512)).text
        gathers[stride] = "llvm.masked.gather" in text
    assert gathers == {2: False, 4: False, 5: True}

"""What lies beyond the end of an axis: who may compute it, and what is there to load."""

import pytest

from hlotune.codegen.llvm.emit import emit
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import region
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.steps import (
    ComputeAt,
    LayOut,
    Overrun,
    Pack,
    Parallel,
    Split,
    Spread,
    Step,
)
from tests.schedules.test_result_steps import BLOCK, PLAIN, nest, refused

ROLES: dict[str, Role] = {"a0": "argument", "m": "temporary"}
AT_7 = Split("out", "i", (7,)), ComputeAt("c", "out", "i.0")
ALONE = *BLOCK[:3], Parallel("tiles", "t")


def rows(taps: int = 1, *, stride: int = 1, summed: bool = False, copied: bool = False) -> Compute:
    """Three rows m of 16; c is the first, or their sum, or every second place of it; sums of
    neighbours in that, or in d, a copy of it."""
    i, extent, last = Affine.axis("i"), 16 // stride, "d" if copied else "c"
    axis, place = Axis("i", extent), (Affine.axis("k"), i)
    near = [Load(last, (i + n,), "f32") for n in range(taps)]
    value = near[0] if taps == 1 else Apply("add", tuple(near), "f32")
    row = Affine.axis("r") if summed else Affine()
    reduce = (Axis("r", 3),) if summed else ()
    combine = SUM if summed else None
    of_made, of_c = Load("m", (row, i * stride), "f32"), Load("c", (i,), "f32")
    copy = Stage("d", (axis,), (), (Store("d", (i,)),), (of_c,))
    return Compute(
        (
            *(Tensor(name, (3, 16), "f32", role) for name, role in ROLES.items()),
            *(Tensor(name, (extent,), "f32", "temporary") for name in "cd"),
            Tensor("y0", (extent + 1 - taps,), "f32", "result"),
        ),
        (
            Stage(
                "made", (Axis("k", 3), Axis("i", 16)), (), (Store("m", place),),
                (Load("a0", place, "f32"),),
            ),
            Stage("c", (axis,), reduce, (Store("c", (i,)),), (of_made,), combine),
            *([copy] if copied else []),
            Stage("out", (Axis("i", extent + 1 - taps),), (), (Store("y0", (i,)),), (value,)),
        ),
    )  # fmt: skip


def unfinished(message: str, *steps: Step, compute: Compute) -> None:
    """The steps apply, and what they make is refused."""
    made = nest(*steps, compute=compute)
    with pytest.raises(ScheduleError, match=message):
        check(made)


def test_a_stage_overruns_only_what_overruns_itself() -> None:
    assert nest(*BLOCK, Overrun("products", "t")).stage("products").overrun == ("t",)
    refused(r"^overrun: products stands at the root", Overrun("products", "t"))
    refused(r"^overrun: products has no parallel axis r2$", *BLOCK, Overrun("products", "r2"))
    refused(
        r"^overrun: weights.* ends with its tensor along i2$", *BLOCK, Overrun("products", "i2")
    )


def test_a_stage_overruns_what_has_room_between_its_slices() -> None:
    """Tiles of 5 channels lie row by row behind each other, and blocks have seven."""
    beyond = -PLAIN.stage("tiles").extents["t"] % 7
    assert beyond
    whole = nest(*ALONE, Spread("tiles", beyond * 5), Overrun("products", "t"), compute=PLAIN)
    assert whole.stage("products").overrun == ("t",)
    check(whole)
    blocks = LayOut("tiles", ((0, 1), (1, 4), (1, 1), (2, 1)))
    alike = LayOut("tiles", ((1, 4), (1, 1), (0, 1), (2, 1)))
    for room in (
        (),
        (Spread("tiles", beyond * 5 - 1),),
        (blocks, Spread("tiles", beyond * 5)),
        (alike, Spread("tiles", 10_000)),
    ):
        refused(
            r"^overrun: tiles.* ends with its tensor along t$",
            *ALONE, *room, Overrun("products", "t"), compute=PLAIN,
        )  # fmt: skip


def test_room_that_a_later_step_takes_away_is_missed() -> None:
    steps = *ALONE, Spread("tiles", 25), Overrun("products", "t"), Spread("tiles", 0)
    unfinished(r"^overrun: tiles.* ends with its tensor along t$", *steps, compute=PLAIN)


@pytest.mark.parametrize(("taps", "safe"), [(1, True), (2, False)])
def test_regions_that_overlap_reach_further_than_their_sizes_add_up_to(
    taps: int, safe: bool
) -> None:
    """Steps of 7 over 15 results with two taps read elements 14 to 22; there are 16, and room for
    5.
    """
    steps, compute = (*AT_7, Spread("made", 5), Overrun("c", "i")), rows(taps)
    if safe:
        assert nest(*steps, compute=compute).stage("c").overrun == ("i",)
    else:
        refused(r"^overrun: m\[0, i\] ends", *steps, compute=compute)


CHAIN = (
    Split("out", "i", (7,)), ComputeAt("d", "out", "i.0"),
    Split("d", "i", (4,)), ComputeAt("c", "d", "i.0"),
    Spread("made", 0),
)  # fmt: skip


def test_regions_inside_of_regions_that_overlap_reach_further_too() -> None:
    """Fours of the eight that begin at 14 end at 22, and four divides 16."""
    compute = rows(2, summed=True, copied=True)
    refused(r"^overrun: m\[r, i\] ends", *CHAIN, Overrun("c", "i"), compute=compute)


def test_room_is_counted_in_what_is_loaded() -> None:
    """Two regions of seven in strides of 2 reach up to element 27; there are 16 and room for 5."""
    compute = rows(stride=2, summed=True)
    steps = *AT_7, Spread("made", 5), Overrun("c", "i")
    refused(r"^overrun: m\[r, 2\*i\] ends with its tensor along i$", *steps, compute=compute)


BEYOND = r"^{}: its regions or blocks of {} reach beyond what there is of {}: compute it in regions"


def test_what_is_no_sum_computes_on_beyond_its_axis() -> None:
    """Without a layout what it loads there is checked."""
    check(nest(*AT_7, compute=rows()))
    wanted = BEYOND.format("c", "i", r"m\[0, i\]")
    for step in (Spread("made", 4), LayOut("made", ((1, 1), (0, 1)))):
        unfinished(wanted, *AT_7, step, compute=rows())
    check(nest(*AT_7, Spread("made", 5), compute=rows()))
    check(nest(*AT_7, LayOut("made", ((1, 1), (0, 1))), compute=rows(summed=True)))
    halves = Split("out", "i", (8,)), ComputeAt("c", "out", "i.0")
    check(nest(*halves, LayOut("made", ((1, 1), (0, 1))), compute=rows()))


def test_a_sum_inside_what_is_no_sum_computes_on_too() -> None:
    compute = rows(2, summed=True, copied=True)
    unfinished(BEYOND.format("c", "i", r"m\[r, i\]"), *CHAIN, compute=compute)


def test_regions_do_not_reach_beyond_what_is_computed_for_several_of_them() -> None:
    def inside(*factors: int) -> tuple[Step, ...]:
        split = Split("out", "i", factors)
        return split, ComputeAt("d", "out", "i.1"), ComputeAt("c", "out", "i.0")

    compute = rows(copied=True)
    for factors in ((4, 4), (2, 5)):
        check(nest(*inside(*factors), compute=compute))
    unfinished(BEYOND.format("d", "i", r"c\[i\]"), *inside(4, 5), compute=compute)


def test_blocks_that_are_copied_whole_reach_beyond_a_region() -> None:
    def copy(block: int) -> tuple[Step, ...]:
        pack = Pack("out", "c", "out", "i.0", ((0, block), (0, 1)), block)
        return Split("out", "i", (8,)), pack, Spread("c", 0)

    check(nest(*copy(4), compute=rows()))
    unfinished(BEYOND.format("c.packed", "p0", r"c\[p0\]"), *copy(3), compute=rows())


def test_a_copy_has_all_that_its_reader_needs_for_what_stands_further_inside() -> None:
    """The loop is of `out`, which reads nothing of `c`: its reader is `d`, four at a time."""
    steps = (
        Split("out", "i", (2, 4)), ComputeAt("d", "out", "i.1"), ComputeAt("c", "out", "i.0"),
        Pack("c", "m", "c", "i", ((0, 1), (1, 1)), 4), ComputeAt("m.packed", "out", "i.0"),
    )  # fmt: skip
    made = nest(*steps, compute=rows(copied=True))
    assert region(made, made.stage("m.packed")) == {"p0": 1, "p1": 8}
    assert emit(made).text

"""Affine maps as arithmetic, and expressions that share their parts."""

from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Load, distinct_loads

ROW, COLUMN = Affine.axis("i"), Affine.axis("j")


def test_differences_of_equal_terms_are_constants() -> None:
    apart = (ROW * 4 + 7) - (ROW * 4 + 2)
    assert apart == Affine((), 5)
    across = ROW - COLUMN
    assert across == Affine((("i", 1), ("j", -1)))
    assert ROW - Affine() is ROW


def test_a_weighted_sum_is_the_sum_of_the_products() -> None:
    parts = (ROW * 3 + 1, 2), (COLUMN + 5, -1), (ROW, -6)
    assert Affine.weighted(parts) == ROW * 6 + 2 + COLUMN * -1 + -5 + ROW * -6
    assert Affine.weighted(parts) == Affine((("j", -1),), -3)


def test_what_is_put_in_the_place_of_an_axis_is_multiplied_and_moved() -> None:
    assert (ROW * 2 + 3).substitute({"i": COLUMN + 4}) == COLUMN * 2 + 11
    assert (ROW * 2 + COLUMN + 3).substitute({"i": COLUMN * 5 + 1}) == COLUMN * 11 + 5
    assert (ROW + COLUMN).substitute({}) == ROW + COLUMN


def test_loads_of_shared_parts_are_found_without_walking_them_twice() -> None:
    first, second = Load("x", (ROW,), "f32"), Load("x", (COLUMN,), "f32")
    value: Apply | Load = Apply("add", (second, first), "f32")
    for _ in range(100):  # walked as a tree: 2^100 leaves
        value = Apply("multiply", (value, value), "f32")
    assert distinct_loads([first, value]) == (first, second)


def test_equal_loads_have_equal_hashes_whatever_was_asked_of_them() -> None:
    one, other = (Load("x", (ROW + 1,), "f32", (2,)) for _ in range(2))
    assert one.axes == ("i",)
    assert one == other
    assert hash(one) == hash(other)


def test_maps_of_a_stage_are_those_of_all_its_loads_of_a_tensor() -> None:
    value = Apply("add", (Load("x", (ROW,), "f32"), Load("x", (ROW + 3,), "f32")), "f32")
    stage = Stage("s", (Axis("i", 8),), (), (Store("y", (ROW,)),), (value,))
    (along,) = stage.maps["x"]
    assert (along.terms, along.least, along.most) == (frozenset({(("i", 1),)}), 0, 3)
    assert stage.stored == {"y"}

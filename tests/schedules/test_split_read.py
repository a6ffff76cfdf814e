"""Dimensions of arguments that are read along several axes are a dimension for each."""

import pytest

from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.split_read import split_read

H, D, T = Affine.axis("h"), Affine.axis("d"), Affine.axis("t")


def reading(*places: Affine, length: int) -> Compute:
    """One stage over t < 5, h < 3 and d < 4 with a load of x[t, .] at each place."""
    axes = (Axis("t", 5), Axis("h", 3), Axis("d", 4))
    tensors = [Tensor("x", (5, length), "f32", "argument")]
    tensors += [Tensor(f"y{n}", (5, 3, 4), "f32", "result") for n in range(len(places))]
    return Compute(
        tuple(tensors),
        (
            Stage(
                "all", axes, (),
                tuple(Store(f"y{n}", (T, H, D)) for n in range(len(places))),
                tuple(Load("x", (T, place), "f32") for place in places),
            ),
        ),
    )  # fmt: skip


def test_digits_of_a_place_are_dimensions() -> None:
    found = split_read(reading(H * 4 + D, length=12))
    assert found.tensor("x").shape == (5, 3, 4)
    assert found.stages[0].loads == (Load("x", (T, H, D), "f32"),)


def test_parts_of_one_argument_are_split_alike() -> None:
    found = split_read(reading(H * 4 + D, H * 4 + D + 12, H * 4 + D + 24, length=36))
    assert found.tensor("x").shape == (5, 9, 4)
    assert [x.index[1] for x in found.stages[0].loads] == [H, H + 3, H + 6]


@pytest.mark.parametrize(
    ("place", "length"),
    [
        (H * 4 + D + 2, 16),  # d reaches into the next h
        (H * 2 + D, 8),  # places overlap
        (H * 4 + D, 14),  # the last part is cut short
        (H * -4 + D + 8, 12),  # backwards
    ],
)
def test_other_places_stay_as_they_are(place: Affine, length: int) -> None:
    compute = reading(place, length=length)
    assert split_read(compute) == compute


def test_a_load_that_is_not_alike_keeps_the_dimension_whole() -> None:
    compute = reading(H * 4 + D, H + D * 3, length=12)
    assert split_read(compute) == compute

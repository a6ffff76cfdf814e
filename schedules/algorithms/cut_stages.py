"""Computes of which some stages are cut, each alone."""

from collections.abc import Callable, Sequence

from hlotune.schedules.ir.compute import Compute, Stage, Tensor

Pieces = tuple[Sequence[Stage], Sequence[Tensor]]


def with_stages_cut(compute: Compute, cut: Callable[[Stage], Pieces | None]) -> Compute | None:
    """The compute with what stages are cut into in their places; None where none is cut.

    Args:
        cut: the stages that one becomes, with the tensors between them; None for one that stays.
    """
    tensors, stages = list(compute.tensors), list[Stage]()
    for stage in compute.stages:
        found, between = cut(stage) or ((stage,), ())
        stages += found
        tensors += between
    return Compute(tuple(tensors), tuple(stages)) if len(stages) > len(compute.stages) else None

"""Faults of kernels of rows, planted into their computes, are all seen by verification."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.verify import verify
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.spaces.cpu_rows.space import space_of

PROGRAMS: dict[str, Callable[..., Any]] = {
    "softmax": jax.nn.softmax,
    "largest": lambda x: x.max(-1),
    "smallest": lambda x: x.min(-1),
    "root of the mean of squares": lambda x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1),
    "number of the largest": lambda x: jnp.argmax(x, -1),
}


def kernel(name: str) -> Kernel:
    return sites(load(PROGRAMS[name], argument("f32[24,70]")))[0].kernel


def last(compute: Compute, change: Callable[[Stage], Stage]) -> Compute:
    """The compute with its last reduction changed."""
    found = [s for s in compute.stages if s.reduce][-1]
    stages = tuple(change(s) if s is found else s for s in compute.stages)
    return replace(compute, stages=stages)


def lost_last_lane(compute: Compute) -> Compute:
    def shorter(s: Stage) -> Stage:
        (r,) = s.reduce
        return replace(s, reduce=(replace(r, extent=r.extent - 1),))

    return last(compute, shorter)


def begun_at_zero(compute: Compute) -> Compute:
    def from_zero(s: Stage) -> Stage:
        assert s.combine is not None
        before = s.combine.identities

        def zeros(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
            return tuple(replace(c, value=0) for c in before(dtypes))

        return replace(s, combine=replace(s.combine, identities=zeros))

    return last(compute, from_zero)


def row_of_another(compute: Compute) -> Compute:
    """What the last stage reads of one number a row is that of the first row."""
    names = {t.name for t in compute.tensors if t.role == "temporary" and len(t.shape) == 1}

    def moved(e: Expr) -> Expr:
        if isinstance(e, Load) and e.tensor in names:
            return replace(e, index=tuple(Affine() for _ in e.index))
        return replace(e, args=tuple(map(moved, e.args))) if isinstance(e, Apply) else e

    *others, out = compute.stages
    changed = replace(out, values=tuple(map(moved, out.values)))
    return replace(compute, stages=(*others, changed))


PLANTED: dict[str, tuple[str, Callable[[Compute], Compute]]] = {
    "a lost last lane of a sum": ("softmax", lost_last_lane),
    "a lost last lane of a largest": ("largest", lost_last_lane),
    "a lost last lane of a mean": ("root of the mean of squares", lost_last_lane),
    "a lost last lane of an argmax": ("number of the largest", lost_last_lane),
    "a max begun at zero": ("largest", begun_at_zero),
    "a min begun at zero": ("smallest", begun_at_zero),
    "a row's sum from another": ("softmax", row_of_another),
    "a row's root from another": ("root of the mean of squares", row_of_another),
}


def verdict(name: str, plant: Callable[[Compute], Compute]) -> Any:
    found = kernel(name)
    compute = plant(compute_of(graph_of(found)))
    space = space_of(compute, host_target())
    return verify(found, build(compute, space.schedule(space.heuristic()), host_target()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_without_a_fault_pass(name: str) -> None:
    assert not isinstance(verdict(name, lambda compute: compute), Failure)


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_a_wrong_result(fault: str) -> None:
    found = verdict(*PLANTED[fault])
    assert isinstance(found, Failure) and found.kind == "wrong_result"

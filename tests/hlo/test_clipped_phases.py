"""Phases of transposed convolutions have their own numbers of taps: no more are multiplied."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL
from hlotune.codegen.runtime.loader import load as load_built
from hlotune.codegen.runtime.prepacking import prepack
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.buffers import guarded, rounded
from hlotune.schedules.ir.expr import map_all_loads
from hlotune.schedules.spaces.cpu_contraction import space as cpu
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Clip
from tests.support.computes import Case, whole
from tests.support.dilations import NCHW, NHWC, check_schedules

AVX512 = replace(TARGETS["znver4"], threads=2)


def transposed(
    spec: Any = NHWC, *, window: int = 3, dilation: int = 2, size: int = 6, channels: int = 40,
    padding: tuple[int, int] = (1, 2), images: int = 2, features: int = 20, frozen: bool = False,
) -> Case:  # fmt: skip
    """Weights of which none is zero."""
    x = whole(images, size, size + 1, channels)
    w = 1 + abs(whole(window, window, channels, features, seed=1))
    if spec == NCHW:
        x, w = x.transpose(0, 3, 1, 2).copy(), w.transpose(3, 2, 0, 1).copy()

    def function(x: Any, w: Any = w) -> Any:
        return lax.conv_general_dilated(
            x, jnp.asarray(w), (1, 1), [padding] * 2, lhs_dilation=(dilation,) * 2,
            dimension_numbers=spec,
        )  # fmt: skip

    name = f"transposed {spec[0]} {window} by {dilation} {padding}"
    return Case(name, function, (x,) if frozen else (x, w))


def first(case: Case) -> tuple[cpu.CpuSpace, Schedule]:
    space = cpu.space_of(case.compute, AVX512)
    return space, space.schedule(space.heuristic())


def clipped(schedule: Schedule) -> set[str]:
    return {s.axis for s in schedule.steps if isinstance(s, Clip)}


@pytest.mark.parametrize(
    ("window", "dilation", "taps"),
    [(3, 2, [(1, 2)]), (5, 2, [(2, 3), (3, 2)]), (4, 3, [(1, 1, 2), (1, 2, 1), (2, 1, 1)])],
)
def test_phases_have_their_own_numbers_of_taps(
    window: int, dilation: int, taps: list[tuple[int, ...]]
) -> None:
    space, schedule = first(transposed(window=window, dilation=dilation, padding=(2, 2)))
    found = [tuple(n for n in x.values()) for x in space.contraction.phases.values()]
    assert len(found) == 2
    if dilation == 2:
        assert all(t in taps or t[::-1] in taps for (t,) in found)
    assert clipped(schedule) == {"r0.1", "r1.1"}


@pytest.mark.parametrize("window", [1, 2, 4])
def test_windows_that_the_dilation_divides_have_no_taps_beyond_them(window: int) -> None:
    space, _ = first(transposed(window=window, padding=(2, 2)))
    assert not space.contraction.phases


def test_windows_that_leave_in_two_dimensions_at_once_have_no_phases() -> None:
    c = first(transposed())[0].contraction
    diagonal = {}
    for x in c.core.loads:
        if x.beside:
            row, _, *others = x.beside.index
            diagonal[x] = replace(x, beside=replace(x.beside, index=(row, row, *others)))
    assert diagonal and len(c.phases) == 2
    core = replace(c.core, values=map_all_loads(c.core.values, diagonal))
    assert not replace(c, core=core).phases


@pytest.mark.parametrize(
    ("spec", "window", "dilation"),
    [(NHWC, 3, 2), (NHWC, 5, 2), (NHWC, 4, 3), (NCHW, 3, 2), (NCHW, 5, 2)],
)
def test_no_tap_beyond_the_window_is_multiplied(spec: Any, window: int, dilation: int) -> None:
    """Packed weights hold zeros there: were these no numbers, results would be none either."""
    case = transposed(spec, window=window, dilation=dilation, frozen=True, size=4)
    space = cpu.space_of(case.compute, host_target())
    (config,) = space.heuristic()[None]
    loaded = load_built(build(case.compute, space.schedule(config), host_target()))
    packed = prepack(loaded, dict(enumerate(case.values)), serial())
    assert len(packed) == 1
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    for poison in (0.0, np.nan):
        given = [packed.get(k, v.reshape(-1).view(np.uint8)) for k, v in enumerate(case.values)]
        buffers = [guarded(x.size, "behind") for x in given]
        for k, (buffer, content) in enumerate(zip(buffers, given, strict=True)):
            buffer.data[...] = content
            if k in packed:
                weights = buffer.data.view(np.float32)
                assert (weights == 0).any()
                weights[weights == 0] = poison
        result = guarded(wanted.nbytes, "behind")
        scratch = guarded(rounded(loaded.built.scratch_bytes), "behind")
        into = [x.address for x in buffers]
        assert not loaded.call(KERNEL, into, [result.address], scratch.address, serial())
        got = result.array(wanted.shape, np.dtype(np.float32))
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("images", [1, 4])
def test_threads_have_equal_shares_of_phases_that_take_different_times(images: int) -> None:
    space, _ = first(transposed(images=images, size=28, channels=128, features=64))
    tiling = space.tiling(space.heuristic())
    phases = {a for numbered in space.contraction.phases.values() for a in numbered}
    assert phases and all(tiling.group[a] * tiling.block[a] == 2 for a in phases), tiling
    assert all(tiling.register[a] == 1 for a in phases)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_schedules_of_any_window_size_and_padding_are_right(data: st.DataObject) -> None:
    draw = data.draw
    dilation, window = draw(st.integers(2, 3)), draw(st.integers(2, 5))
    case = transposed(
        draw(st.sampled_from([NHWC, NCHW])), window=window, dilation=dilation,
        size=draw(st.integers(2, 6)), channels=draw(st.sampled_from([1, 3, 17])),
        features=draw(st.sampled_from([1, 5, 20])), images=draw(st.integers(1, 2)),
        padding=(draw(st.integers(0, 3)), draw(st.integers(0, 3))), frozen=draw(st.booleans()),
    )  # fmt: skip
    assume(case.program.graph.result_types[0].elements)
    check_schedules(case, "direct", drawn=3)

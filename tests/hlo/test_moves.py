"""Programs that compute nothing and move elements alone are kernels too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Split, Vectorize
from tests.support.reductions import called

Moves = Callable[..., Any]


def streamed(x: Any) -> Any:
    return jnp.stack([jnp.roll(x[i], (i % 3 - 1, i // 3 - 1), (0, 1)) for i in range(9)])


def neighbours(x: Any) -> Any:
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.stack([padded[:, i : i + 5, j : j + 6] for i in range(3) for j in range(3)], 3)


def windows(x: Any) -> Any:
    moved = jnp.roll(x, (-1, -2), (1, 2))
    return moved.reshape(2, 2, 3, 2, 4, 8).swapaxes(2, 3).reshape(8, 12, 8)


CASES: dict[str, tuple[Moves, tuple[tuple[int, ...], ...]]] = {
    "roll": (lambda x: jnp.roll(x, 3, 0), ((17, 40),)),
    "roll along both axes": (lambda x: jnp.roll(x, (3, -5), (0, 1)), ((17, 40),)),
    "roll along three axes": (lambda x: jnp.roll(x, (1, 2, 3), (0, 1, 2)), ((5, 6, 20),)),
    "pixels twice": (lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), ((2, 3, 5, 16),)),
    "pixels of images twice": (lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), ((2, 3, 20),)),
    "repeat of elements": (lambda x: jnp.repeat(x, 3, 1), ((7, 20),)),
    "tile": (lambda x: jnp.tile(x, (2, 3)), ((7, 20),)),
    "flip": (lambda x: jnp.flip(x, (0, 1)), ((7, 33),)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (3, 4)), constant_values=7), ((7, 33),)),
    "pad by its edge": (lambda x: jnp.pad(x, 2, mode="edge"), ((7, 33),)),
    "concatenation": (lambda x, y: jnp.concatenate([x, y], 1), ((9, 17), (9, 20))),
    "stack": (lambda x, y: jnp.stack([x, y], -1), ((9, 17), (9, 17))),
    "features to pixels": (
        lambda x: x.reshape(2, 3, 4, 2, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(2, 6, 8, 8),
        ((2, 3, 4, 32),),
    ),
    "channels shuffled": (
        lambda x: x.reshape(6, 5, 2, 16).swapaxes(2, 3).reshape(6, 5, 32), ((6, 5, 32),),
    ),
    "shifted windows": (windows, ((2, 6, 8, 8),)),
    "neighbours side by side": (neighbours, ((2, 5, 6, 8),)),
    "streaming of a lattice": (streamed, ((9, 7, 20),)),
    "product of Kronecker": (jnp.kron, ((3, 5), (4, 6))),
}  # fmt: skip


def cut(function: Moves, *shapes: tuple[int, ...]) -> list[Site]:
    return list(sites(load(function, *(argument(f"f32[{','.join(map(str, s))}]") for s in shapes))))


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_moves_is_one_kernel_that_puts_every_element_in_its_place(name: str) -> None:
    function, shapes = CASES[name]
    (site, *_) = cut(function, *shapes)
    graph = graph_of(site.kernel)
    compute, rng = compute_of(graph), np.random.default_rng(0)
    values = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    space = space_of(compute, host_target())
    (got,) = called(compute, space.schedule(space.heuristic()).steps, values)
    expected = np.asarray(jax.jit(function)(*values))
    assert got.size == expected.size, "the whole program is one kernel"
    assert np.array_equal(got.reshape(expected.shape), expected)


def test_parts_that_are_chosen_are_read_where_they_go_to_by_lanes_that_choose_alike() -> None:
    site, *others = cut(streamed, (9, 64, 128))
    compute = compute_of(graph_of(site.kernel))
    space = space_of(compute, host_target())
    assert not others
    assert [s.name for s in compute.stages] == ["out"]
    assert Vectorize("out", "i2.4") in space.schedule(space.heuristic()).steps


@pytest.mark.parametrize("name", ["x86-64-v3", "znver4"])
def test_threads_share_the_rows_of_planes_that_they_would_share_unevenly(name: str) -> None:
    """With nine planes taken four at a time, one of two threads would have eight."""
    (site,) = cut(streamed, (9, 512, 512))
    space = space_of(compute_of(graph_of(site.kernel)), replace(TARGETS[name], threads=2))
    steps = space.schedule(space.heuristic()).steps
    splits = {s.axis: s.factors for s in steps if isinstance(s, Split)}
    assert splits["i0"] == (3, 1, 4), "one task has all planes"
    assert splits["i1"] == (1, 256), "and half of the rows"


def test_empty_parts_and_slices_of_all_are_left_out() -> None:
    program = load(lambda x: jnp.roll(x, (0, 3), (0, 1)) * 2, argument("f32[9,40]"))
    concatenated = [op for op in program.graph.ops if op.name == "stablehlo.concatenate"]
    assert len(concatenated) == 1
    assert all(0 not in kind.shape for kind in program.graph.types)


def test_what_is_written_out_for_kernels_alone_is_no_kernel_of_its_own() -> None:
    def scaled(x: Any, scale: Any) -> Any:
        return jnp.repeat(scale, 4) * x

    (site, *_) = found = cut(scaled, (6, 40), (10,))
    assert len(found) == 1
    assert site.label == "scale 6x40"


def test_reshapes_and_numbers_everywhere_are_left_to_xla() -> None:
    assert cut(lambda x: x.reshape(4, 10), (40,)) == []
    assert cut(lambda x: (jnp.zeros((6, 40)), jnp.broadcast_to(x, (6, 40))), ()) == []


def test_a_box_put_into_a_tensor_is_left_to_xla_which_may_do_so_in_place() -> None:
    assert cut(lambda x, y: x.at[1:3].set(y), (9, 40), (2, 40)) == []

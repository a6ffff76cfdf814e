"""Numbers of PyTorch at the borders of its rules: factors that change no size, types of complex
numbers, poles of functions, and memory that is not what it says."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from tests.support.torch_modules import Of, require_equal

pytestmark = pytest.mark.torch
MODES = {
    1: ("linear", "nearest", "nearest-exact"),
    2: ("bilinear", "bicubic", "nearest", "nearest-exact"),
    3: ("trilinear", "nearest", "nearest-exact"),
}


def computed(module: nn.Module, *tensors: torch.Tensor) -> list[Any]:
    """What the module's program gives."""
    program = load(module, *tensors)
    assert program.example_args is not None
    with jax.enable_x64(True):
        return [
            np.asarray(leaf) for leaf in jax.tree.leaves(jitted(program)(*program.example_args))
        ]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_factor_near_a_whole_one_reads_the_pixels_of_pytorch(rank: int) -> None:
    def function(x: Any) -> Any:
        of = nn.functional.interpolate
        return tuple(
            of(x, scale_factor=f, mode=m)
            for f in (1.05, 1.09, 2.05, 2.09, 0.95)
            for m in MODES[rank]
        )

    torch.manual_seed(0)
    require_equal(Of(function), torch.randn(1, 2, *(10, 11, 12)[:rank]))


def images(x: Any) -> Any:
    """Resized in all ways that PyTorch has for bytes and for floats."""
    of, sizes = nn.functional.interpolate, ((14, 5), (4, 23), (7, 20), (2, 3))
    return (
        *(of(x, s, mode=m, align_corners=a) for s in sizes for m in ("bilinear", "bicubic")
          for a in (True, False)),
        *(of(x, scale_factor=f, mode=m) for f in (1.05, 1.7, 0.6) for m in MODES[2]),
    )  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_bytes_of_images_are_those_of_pytorch(channels: int) -> None:
    torch.manual_seed(0)
    require_equal(Of(images), torch.randint(0, 256, (2, channels, 7, 10), dtype=torch.uint8))


def narrow(x: Any) -> list[Any]:
    """Resized to one row or column, or to one number, and from them."""
    of, sizes = nn.functional.interpolate, ((1, 1), (7, 1), (1, 10), (4, 1), (1, 23), (14, 1))
    columns, row = x[..., :1], x[..., :1, :]
    return [
        of(image, size, mode=mode, align_corners=aligned)
        for image, to in ((x, sizes), (columns, ((7, 5), (3, 1))), (row, ((5, 10), (1, 4))))
        for size in to
        for mode in ("bilinear", "bicubic")
        for aligned in (True, False)
    ]


@pytest.mark.parametrize("channels", [1, 3, 4, 8])
def test_bytes_of_images_of_one_column_or_row_are_those_of_pytorch(channels: int) -> None:
    """Each channel alone: of several torch 2.13 repeats the first row of one column, or fails."""
    torch.manual_seed(0)
    x = torch.randint(0, 256, (2, channels, 7, 10), dtype=torch.uint8)
    alone = zip(*(narrow(x[:, c : c + 1]) for c in range(channels)), strict=True)
    for one, parts in zip(computed(Of(narrow), x), alone, strict=True):
        np.testing.assert_array_equal(one, torch.cat(parts, 1).numpy())


def test_images_of_wide_floats_lose_nothing_by_resizing() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 7, 10, dtype=torch.float64)
    for one, other in zip(computed(Of(images), x), images(x), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12, atol=1e-13)


def test_images_of_short_floats_are_rounded_once() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 7, 10).bfloat16()
    for one, other in zip(computed(Of(images), x), images(x.float()), strict=True):
        assert str(one.dtype) == "bfloat16"
        np.testing.assert_allclose(one.astype(np.float32), other.numpy(), rtol=4e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about its own decompositions
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_end_at_their_last_offset_and_paddings_count_from_the_end(mode: str) -> None:
    def function(table: Any, n: Any, ends: Any) -> Any:
        of = nn.functional.embedding_bag
        return (
            of(n, table, ends, mode=mode, include_last_offset=True),
            of(n, table, ends, mode=mode, include_last_offset=True, padding_idx=-1),
            of(n, table, ends, mode=mode, padding_idx=-3),
            of(n.reshape(4, 3), table, mode=mode),
        )

    torch.manual_seed(0)
    n, ends = torch.tensor([4, 1, 8, 8, 0, 2, 6, 6, 3, 8, 5, 7]), torch.tensor([0, 3, 3, 8])
    for table in (torch.randn(9, 5), torch.randn(9, 5, dtype=torch.float64)):
        require_equal(Of(function), table, n, ends)
    program = torch.export.export(Of(function), (table, n, ends)).run_decompositions()
    require_equal(program.module(), table, n, ends)


class Turned(nn.Module):
    """With a buffer and a constant that PyTorch conjugates and negates when it reads them."""

    turned: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        z = torch.tensor([1 + 2j, 3 - 1j, -4j])
        self.register_buffer("turned", z.conj())
        self.weight = nn.Parameter((2 * z).conj())
        self.negated = z.conj().imag

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.turned, x * self.negated, self.turned.imag + x, x * self.weight


def test_numbers_that_are_conjugated_when_they_are_read_are_those_of_pytorch() -> None:
    module, x = Turned().eval(), torch.randn(3)
    with torch.no_grad():
        wanted = module(x)
    for one, other in zip(computed(module, x), wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)
    assert module.turned.is_conj()
    z = torch.tensor([1 + 2j, 3 - 1j])
    require_equal(Of(lambda z, y: (z.abs() + z.imag, y * 2)), z.conj(), z.conj().imag)


def test_functions_at_their_poles_are_those_of_pytorch() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, 1.0, 2.0, -1.5, inf, -inf, nan])
    for real in (x, x.double()):
        require_equal(Of(lambda x: (x.digamma(), x.lgamma(), x.angle())), real)
    n = torch.tensor([-2, 0, 3])
    require_equal(Of(lambda n, p: (n.angle(), p.angle(), n.lgamma())), n, n > 0)


def test_types_of_complex_numbers_are_those_of_pytorch() -> None:
    def function(x: Any, y: Any, n: Any, z: Any, w: Any) -> Any:
        return (
            x * z, y * z, n * z, x * w, y * w, n * w, w * x[0], z * y[0], z * y, z[None] * y[0],
            x * 1j, y * (2 - 1j), n + 1j, y[0] * 1j, x.bfloat16() * 1j, z * 2, z[None] * 1.5,
            torch.where(n > 1, x, 1j), x + float("inf") * 1j, x * n[0], n * y[0], (n > 1) * z,
        )  # fmt: skip

    x = torch.randn(3)
    z = torch.tensor(1 - 2j)
    arguments = (x, x.double(), torch.arange(3), z, z.to(torch.complex128))
    wanted = function(*arguments)
    for one, other in zip(computed(Of(function), *arguments), wanted, strict=True):
        assert str(one.dtype) == str(other.dtype).removeprefix("torch.")
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


def test_numbers_of_no_axes_are_scanned_and_cut_as_in_pytorch() -> None:
    def function(x: Any, n: Any) -> Any:
        return (
            x.unfold(0, 1, 1), x.unfold(0, 0, 1), n.unfold(-1, 1, 2), x.cumsum(0), n.cumsum(-1),
            x.cumprod(0), n.cumprod(-1), x.logcumsumexp(0),
        )  # fmt: skip

    require_equal(Of(function), torch.tensor(3.5), torch.tensor(3, dtype=torch.int32))

"""Operations of PyTorch give its numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from tests.support.torch_modules import Of, flattened, require_equal

pytestmark = pytest.mark.torch


def test_operations_give_numbers_and_types_of_pytorch() -> None:
    def function(x: Any, y: Any, n: Any, mask: Any) -> Any:
        half = x.to(torch.float16)
        q = x.reshape(2, 2, 6, 4)
        return (
            x[..., 0] + n, n / 2, n * 1.5, n // 2, 3 - x, x.pow(2), y.rsqrt(), x**-1.0,
            half + y[0, 0], half * 2, n + mask, n.sum(), x.mean((0, 1), keepdim=True), x.amax(1),
            x.std(0),
            torch.cat([n.float(), x[..., 0]], 1), x.masked_fill(mask[..., None], 7.0),
            torch.where(mask, n, 0), x.clamp(-0.5), x.clamp(max=y), x[:, 1:5:2, -1], x.unbind(1)[2],
            x.split([1, 3], -1)[1], x.chunk(3, -1)[-1], x.index_select(1, n[0] % 12),
            x.gather(1, (n % 12)[:, :2, None].expand(-1, -1, 4)), x[:, [0, 3]], x.max(1)[1],
            x.cumsum(1), x.transpose(1, 2).contiguous().view(2, -1), torch.arange(3), n.argmax(1),
            torch.zeros(2), torch.ones_like(n), torch.full((2,), 3), x.new_zeros(1), x.tril(1),
            nn.functional.pad(x, (1, -1, 0, 2), value=2.0), x.repeat(1, 2, 1), x.log_softmax(1),
            nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
            nn.functional.scaled_dot_product_attention(q, q, q, mask[:1, :6]),
            torch.einsum("bij,bkj->bik", x, y), torch.addmm(x[0, 0], x[0], x[1].T @ y[1], beta=2),
        )  # fmt: skip

    torch.manual_seed(0)
    n = torch.randint(0, 9, (2, 12))
    x, y = torch.randn(2, 12, 4), torch.rand(2, 12, 4) + 0.5
    mask = torch.tensor([[True, False, True] * 4, [False, False, True] * 4])
    require_equal(Of(function), x, y, n, mask)


def test_values_are_written_at_places_and_sorted_as_in_pytorch() -> None:
    def function(x: Any, y: Any, n: Any, m: Any) -> Any:
        return (
            x.scatter(1, n, y), x.scatter(1, n, 2.0), x.scatter(0, n % 2, 2.0, reduce="add"),
            x.scatter_add(1, n, y), x.scatter_reduce(1, n, y, "amax"), x.sort(1)[0], x.sort(0)[1],
            x.index_put([torch.tensor([1, 0]), torch.tensor([2, 2])], y[0, :2], accumulate=True),
            x.masked_fill(m, 0).index_put([m], torch.tensor(3.0)), x.argsort(1, descending=True),
            x.index_add(1, torch.tensor([0, 0, 3]), y[:, :3], alpha=2), x.topk(2, 1), n.topk(1)[0],
            x.index_copy(1, torch.tensor([4, 1]), y[:, :2]), x.topk(3, 0, largest=False)[1],
            x.select_scatter(y[:, 0], 1, 3), x.slice_scatter(y[:, :2], 1, 1, 5, 2),
            n.diff(), m.diff(dim=0, prepend=m[:1]), x.movedim(1, 0), y[0].broadcast_to(3, 4),
            x.diagonal(1), torch.outer(x[0], y[0]), torch.max(x[:, :4], y), torch.min(n, n + 1.5),
        )  # fmt: skip

    torch.manual_seed(0)
    x, y = torch.randn(3, 6), torch.randn(3, 4)
    n = torch.tensor([[0, 1, 2, 3], [5, 4, 3, 2], [1, 2, 5, 0]])
    require_equal(Of(lambda *a: flattened(function(*a))), x, y, n, x > 0.5)


def resized(x: Any, line: Any, solid: Any) -> Any:
    """To sizes and by factors, whole and others, with corners aligned or not."""
    of = nn.functional.interpolate
    sizes, factors = ((14, 20), (5, 23), (1, 1)), (2.0, 1.7, (0.6, 3.0))
    return (
        *(of(x, s, mode=m, align_corners=a) for s in sizes for m in ("bilinear", "bicubic")
          for a in (True, False)),
        *(of(x, s, mode=m) for s in sizes for m in ("nearest", "nearest-exact")),
        *(of(x, scale_factor=f, mode=m) for f in factors for m in ("bilinear", "nearest")),
        of(x, scale_factor=1.7, mode="bicubic", recompute_scale_factor=True),
        of(line, 17, mode="linear"), of(line, 17), of(solid, scale_factor=2),
        of(solid, (3, 9, 7), mode="trilinear", align_corners=True),
    )  # fmt: skip


def test_images_are_resized_as_in_pytorch() -> None:
    torch.manual_seed(0)
    require_equal(Of(resized), torch.randn(1, 3, 7, 10), torch.randn(2, 3, 11), torch.randn(
        1, 2, 4, 5, 6))  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_values_at_places_of_a_grid_are_those_of_pytorch(mode: str) -> None:
    def function(x: Any, grid: Any) -> Any:
        kinds = [(p, a) for p in ("zeros", "border", "reflection") for a in (True, False)]
        return tuple(nn.functional.grid_sample(x, grid, mode, p, a) for p, a in kinds)

    torch.manual_seed(0)
    require_equal(Of(function), torch.randn(2, 3, 7, 9), torch.rand(2, 5, 6, 2) * 2.4 - 1.2)


def test_norms_of_instances_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    for of_batches in (False, True):
        module = nn.InstanceNorm2d(3, affine=True, track_running_stats=of_batches)
        nn.init.uniform_(module.weight)
        require_equal(module.eval(), torch.randn(2, 3, 5, 6))


def test_functions_of_one_and_two_numbers_are_those_of_pytorch() -> None:
    inf = float("inf")

    def function(x: Any, y: Any, n: Any) -> Any:
        return (
            x.asinh(), y.acosh(), (x / 9).atanh(), y.log10(), x.erfc(), (x / 9).erfinv(),
            y.lgamma(), y.digamma(), torch.atan2(x, y), torch.atan2(n, n + 1), x.fmax(x / 0),
            x.fmin(y), torch.logaddexp(x, y), torch.hypot(x, y), x.copysign(-y), x.copysign(n),
            *(torch.linalg.vector_norm(x, p, dim=1) for p in (0, 1, 3, inf, -inf)),
            (x[:5] + torch.full((5, 5), -inf).triu(1)).softmax(-1), x.new_full((2,), -inf),
            torch.cdist(x, x[:4] + 1), torch.cdist(x, y, p=1.0), torch.cdist(x, y, p=inf),
        )  # fmt: skip

    torch.manual_seed(0)
    x, y, n = torch.randn(6, 5), torch.rand(6, 5) + 1.5, torch.arange(-12, 18).reshape(6, 5)
    require_equal(Of(function), x, y, n)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_those_of_pytorch(mode: str) -> None:
    torch.manual_seed(0)
    n, begins = torch.randint(0, 9, (12,)), torch.tensor([0, 3, 3, 8])
    require_equal(nn.EmbeddingBag(9, 4, mode=mode), n, begins)
    require_equal(nn.EmbeddingBag(9, 4, mode=mode, padding_idx=2), n.reshape(3, 4))
    if mode == "sum":
        bag = nn.EmbeddingBag(9, 4, mode=mode, include_last_offset=True)
        require_equal(Of(lambda *a: bag(*a)), n, torch.tensor([0, 3, 12]), torch.rand(12))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_loops_with_the_numbers_of_pytorch(kind: Any) -> None:
    torch.manual_seed(0)
    for module in (kind(5, 6, 2, bidirectional=True), kind(5, 6, bias=False, batch_first=True)):
        program = load(module.eval(), torch.randn(7, 3, 5))
        assert any(op.name == "stablehlo.while" for op in program.graph.ops)
        require_equal(Of(lambda x, m=module: flattened(m(x))), torch.randn(7, 3, 5))
    relu = nn.RNN(5, 6, nonlinearity="relu")
    require_equal(Of(lambda x: relu(x)), torch.randn(7, 3, 5))


def rotated(x: Any) -> Any:
    """Rotary positions as Llama writes them, by complex numbers."""
    angles = torch.outer(torch.arange(5.0), 100 ** -torch.arange(0, 1, 0.25))
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(2)


def test_complex_numbers_and_their_transforms_are_those_of_pytorch() -> None:
    def function(x: Any) -> Any:
        whole = torch.fft.fft2(x, norm="ortho")
        return (
            rotated(x), torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, n=5, dim=1), whole.abs(),
            whole.angle(), torch.fft.ifftn(whole, dim=(0, 2)).real, whole.conj().imag, whole.sum(),
            torch.fft.irfft2(torch.fft.rfft2(x, norm="forward"), x.shape[1:], norm="forward"),
        )  # fmt: skip

    torch.manual_seed(0)
    program = load(Of(function), x := torch.randn(3, 5, 8))
    assert program.example_args is not None
    wanted = function(x)
    for one, other in zip(jitted(program)(*program.example_args), wanted, strict=True):
        np.testing.assert_allclose(one, other.resolve_neg().numpy(), rtol=2e-4, atol=2e-5)


def test_a_median_is_the_first_that_is_no_number_where_one_is() -> None:
    none = float("nan")
    rows = [[3.0, none, 1.0, none], [2.0, 1.0, 4.0, 3.0], [none, 0.0, none, none], [none] * 4]
    x = torch.tensor(rows)

    def function(x: Any) -> Any:
        every = *x.median(1), *x.median(0), *x.median(-1, keepdim=True), x.median()
        return *every, x[1].median(), *x[1].median(0)

    require_equal(Of(function), x)


def test_parts_that_are_written_and_places_that_are_found_are_those_of_pytorch() -> None:
    def function(x: Any, n: Any) -> Any:
        y = torch.zeros(4, 8)
        y[:, 1:7] = x
        y[2] = 5.0
        edges = torch.tensor([-1.0, 0.0, 0.5])
        return (
            y, x.unfold(1, 3, 2), x.unfold(0, 2, 1), torch.bucketize(x, edges, right=True),
            torch.searchsorted(edges, x), nn.functional.one_hot(n, 9), n << 2, n >> 1,
            torch.gcd(n, n + 6), x.cumprod(1), x.logcumsumexp(0), *x.median(1), x.median(),
            *x.kthvalue(2, 0),
        )  # fmt: skip

    torch.manual_seed(0)
    require_equal(Of(function), torch.randn(4, 6), torch.randint(0, 9, (7,)))

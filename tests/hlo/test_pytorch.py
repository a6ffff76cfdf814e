"""PyTorch modules, and files of `torch.export`, are programs like any other."""

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError

pytestmark = pytest.mark.torch


class Block(nn.Module):
    """A block of a residual network, with additions and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding="same", dilation=2, groups=2),
        )
        self.side = nn.Conv2d(4, 8, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.main(x)
        y += self.side(x)
        return torch.relu_(y)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def randomized(module: nn.Module) -> nn.Module:
    """In evaluation, with statistics of batches that are not those of the beginning."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            nn.init.uniform_(child.running_mean, -1, 1)  # type: ignore[arg-type]
            nn.init.uniform_(child.running_var, 0.5, 2)  # type: ignore[arg-type]
    return module.eval()


def require_equal(module: nn.Module, *tensors: torch.Tensor) -> None:
    program = load(module, *tensors)
    assert program.example_args is not None
    with jax.enable_x64(True):
        got = jax.tree.leaves(jitted(program)(*program.example_args))
    with torch.no_grad():
        wanted = module(*tensors)
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert str(one.dtype) == str(other.dtype).removeprefix("torch.")
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-6)


def exported(tmp_path: Path, module: nn.Module, *tensors: torch.Tensor) -> Path:
    path = tmp_path / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(module, tensors), path)
    return path


CNN = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
    nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AdaptiveAvgPool2d((3, 2)),
    nn.Flatten(), nn.Dropout(), nn.Linear(48, 4), nn.Softmax(-1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (CNN, (2, 3, 16, 18)),
        (Block(), (2, 4, 12, 12)),
        (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Tanh()), (5, 8)),
        (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 5, 16)),
        (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=2), (2, 4, 5, 6)),
        (nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.Upsample(scale_factor=2)), (2, 4, 5, 6)),
    ],
    ids=["cnn", "residual", "mlp", "transformer", "transposed", "upsampled"],
)
def test_a_module_gives_the_numbers_of_pytorch(module: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    require_equal(randomized(module), torch.randn(shape))


def test_a_module_in_the_order_of_channels_last_gives_the_numbers_of_pytorch() -> None:
    module = randomized(Block())
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    require_equal(module, torch.randn(2, 4, 12, 12).to(memory_format=torch.channels_last))


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


def flattened(results: Any) -> list[Any]:
    parts = [list(r) if isinstance(r, tuple) else [r] for r in results]
    return [tensor for part in parts for tensor in part]


def test_an_embedding_takes_indices_and_results_keep_their_structure() -> None:
    table = nn.Embedding(10, 4)
    module = Of(lambda i, d: {"b": table(i) * d["z"], "a": (d["k"], i.shape[0], None)})
    indices = torch.tensor([[1, 2, 9]])
    given = {"z": torch.full((4,), 2.0), "k": torch.ones(1)}
    program = load(module, indices, given)
    assert program.example_args is not None
    with jax.enable_x64(True):
        got = jitted(program)(*program.example_args)
    np.testing.assert_allclose(got["b"], (table(indices) * 2).detach().numpy())
    assert (int(got["a"][1]), got["a"][2], len(program.graph.argument_types)) == (1, None, 3)


def test_a_file_gives_the_numbers_of_its_module_and_kernels_hold_weights(tmp_path: Path) -> None:
    module, x = randomized(CNN), torch.randn(2, 3, 16, 18)
    program = load(exported(tmp_path, module, x))
    (got,) = jitted(program)(input=x.numpy())
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=2e-5, atol=2e-6)
    texts = [s.kernel.text for s in sites(program) if "stablehlo.convolution" in s.kernel.text]
    assert texts and all("hlotune.constant" in t for t in texts)


def test_a_change_that_another_tensor_sees_is_decomposed_or_refused(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        y = x * 2
        row = y[0]
        row.add_(1)
        return y + row

    require_equal(Of(function), torch.randn(2, 3))
    with pytest.raises(ProgramError, match=r"no change of memory that another .*add_\.Tensor"):
        load(exported(tmp_path, Of(function), torch.randn(2, 3)))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            Of(lambda x: torch.special.bessel_j0(x) + torch.polygamma(2, x)),
            r"rules for .*aten\.polygamma.*aten\.special_bessel_j0.*; save",
        ),
        (nn.Sequential(nn.Dropout()).train(), r"dropout in training: call module\.eval\(\)"),
        (nn.BatchNorm1d(3).train(), r"call module\.eval\(\)"),
        (
            nn.InstanceNorm1d(3, track_running_stats=True).train(),
            r"updates its running statistics: call module\.eval\(\)",
        ),
        (
            Of(lambda x: torch.embedding_bag(x, torch.tensor([0]), torch.tensor([0]))[1]),
            r"does not compute of embedding_bag\.default; leave it out",
        ),
        (Of(lambda x: x.half() * 1j), r"complex numbers of f16: convert"),
        (Of(lambda x: x.add_(1)), r"of its inputs or weights"),
        (Of(lambda x: x.nonzero()), r"nonzero"),
        (Of(lambda x: x.no_such()), r"torch\.export takes .*no_such"),
    ],
    ids=[
        "no rule",
        "dropout",
        "batch norm",
        "instance norm",
        "bag",
        "f16",
        "argument",
        "shape",
        "export",
    ],
)
def test_a_module_that_is_not_taken_says_why(module: nn.Module, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        load(module, torch.randn(3, 3))


def test_an_argument_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"expected tensors as example arguments .* got float"):
        load(Of(lambda x, y: x * y), torch.ones(2), 2.0)


def changed(path: Path, member: str, change: Any) -> Path:
    """The file with another member."""
    other = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(member):
                content = json.dumps(change(json.loads(content))).encode()
            new.writestr(name, content)
    return other


def test_files_that_are_unsafe_or_damaged_are_one_error(tmp_path: Path) -> None:
    path = exported(tmp_path, nn.Linear(3, 2), torch.ones(1, 3))

    def pickled(config: Any) -> Any:
        config["config"]["weight"]["use_pickle"] = True
        return config

    def longer(config: Any) -> Any:
        config["config"]["weight"]["tensor_meta"]["sizes"][0]["as_int"] = 1 << 40
        return config

    def older(model: Any) -> Any:
        return model | {"schema_version": {"major": 7, "minor": 1}}

    weights = "model_weights_config.json"
    for member, change, message in (
        (weights, pickled, "raw bytes in .* got 'weight' pickled, and unpickling runs code"),
        (weights, longer, "bytes of 'weight', too few for"),
        ("model.json", older, "graph of schema 8 .* got schema 7"),
        ("model.json", lambda model: {}, "a graph that lacks what it must have"),
    ):
        with pytest.raises(ProgramError, match=message):
            load(changed(path, member, change))
    torch.save(torch.ones(1), path)
    with pytest.raises(ProgramError, match=r"expected models/model\.json in"):
        load(path)


class Sized(nn.Module):
    """Computes with the sizes of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        rows = self.layer(x).view(x.shape[0] * x.shape[1], -1)
        return rows + y[:, : x.shape[1]].sum(), torch.zeros(x.shape[0] + 1, 4) + rows.mean(0)


def test_a_file_of_symbolic_shapes_takes_their_sizes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, module = tmp_path / "dynamic.pt2", Sized().eval()
    batch = torch.export.Dim("batch", max=64)
    shapes = ({0: batch, 1: torch.export.Dim("time", max=11)}, {0: 2 * batch})
    given = (torch.randn(4, 6, 8), torch.randn(8, 12))
    with torch.no_grad():
        made = torch.export.export(module, given, dynamic_shapes=shapes)
        torch.export.save(made, path)
    with pytest.raises(ProgramError, match=r"got none for s\d+, s\d+ \(x is s\d+ x s\d+ x 8, y is"):
        load(path)
    with pytest.raises(ProgramError, match=r"expected 6 as 2\*s\d+ of .*, got 5; give sizes"):
        load(path, dims={"x.0": 3, "x.1": 5, "y.0": 5})
    with pytest.raises(ProgramError, match=r"at most 64 as s\d+ of .*, as it was exported, got 65"):
        load(path, dims={"x.0": 65, "x.1": 5})
    x, y = torch.randn(3, 5, 8), torch.randn(6, 12)
    got = jitted(load(path, dims={"x.0": 3, "x.1": 5}))(x.numpy(), y.numpy())
    with torch.no_grad():
        for one, other in zip(got, module(x, y), strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-6)


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

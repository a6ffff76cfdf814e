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
from tests.support.torch_modules import Of, exported, require_equal

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


def randomized(module: nn.Module) -> nn.Module:
    """In evaluation, with statistics of batches that are not those of the beginning."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            nn.init.uniform_(child.running_mean, -1, 1)  # type: ignore[arg-type]
            nn.init.uniform_(child.running_var, 0.5, 2)  # type: ignore[arg-type]
    return module.eval()


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

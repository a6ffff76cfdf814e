"""The six networks as modules of PyTorch, with the weights of the examples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Tree = dict[str, Any]
"""Arrays by name, in dictionaries; what was a list has numbers for names."""


def network(name: str, weights: Path) -> nn.Module:
    """A network in evaluation; images have their channels ahead of their rows."""
    with np.load(weights) as file:
        tree = nested(file)
    made: nn.Module = BUILDERS[name](tree)
    return made.eval().requires_grad_(False)


def nested(arrays: Mapping[str, Any]) -> Tree:
    """The tree whose arrays have these paths."""
    tree: Tree = {}
    for path in arrays:
        *folders, last = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = arrays[path]
    return tree


def numbered(tree: Tree) -> list[Any]:
    """The elements of what was a list."""
    return [tree[str(k)] for k in range(len(tree))]


def parameter(values: Any) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(values, order="C")), requires_grad=False)


def dense(layer: Tree) -> nn.Linear:
    return linear(layer["weights"], layer["bias"])


def linear(weights: Any, bias: Any) -> nn.Linear:
    made = nn.Linear(*weights.shape)
    made.weight, made.bias = parameter(weights.T), parameter(bias)
    return made


def convolution(layer: Tree, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A square window, padded by half of its size."""
    size, _, of_group, outputs = layer["weights"].shape
    made = nn.Conv2d(of_group * groups, outputs, size, stride, size // 2, groups=groups)
    made.weight = parameter(layer["weights"].transpose(3, 2, 0, 1))
    made.bias = parameter(layer["bias"])
    return made


def unit(layer: Tree, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution with its batch norm."""
    given = layer["norm"]
    norm = nn.BatchNorm2d(len(given["mean"]), eps=1e-5)
    norm.weight, norm.bias = parameter(given["gamma"]), parameter(given["beta"])
    norm.running_mean, norm.running_var = (
        torch.from_numpy(np.array(given[k])) for k in ("mean", "variance")
    )
    return nn.Sequential(convolution(layer["conv"], stride, groups), norm)


class Residual(nn.Module):
    """Layers beside a shortcut; the sum goes through an activation or is the result itself."""

    def __init__(self, layers: nn.Module, short: nn.Module, behind: nn.Module) -> None:
        super().__init__()
        self.layers, self.short, self.behind = layers, short, behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.behind(self.layers(x) + self.short(x))
        return y


def resnet(weights: Tree) -> nn.Module:
    layers: list[nn.Module] = [unit(weights["stem"], 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for name, block in weights["blocks"].items():
        layers.append(_block(block, 2 if name.endswith(".0") and name != "0.0" else 1))
    return nn.Sequential(*layers, *_head(weights["head"]))


def _block(block: Tree, stride: int) -> Residual:
    units = numbered(block["units"])
    strided = 0 if len(units) == 2 else 1
    made: list[nn.Module] = []
    for n, layer in enumerate(units):
        made += [unit(layer, stride if n == strided else 1), nn.ReLU()]
    short = unit(block["short"], stride) if "short" in block else nn.Identity()
    return Residual(nn.Sequential(*made[:-1]), short, nn.ReLU())


def _head(layer: Tree) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense(layer)]


def mobilenet(weights: Tree) -> nn.Module:
    layers: list[nn.Module] = [unit(weights["stem"], 2), nn.ReLU6()]
    strides = {"1": 2, "2": 2, "3": 2, "5": 2}
    for name, block in weights.items():
        stage, _, number = name.partition(".")
        if number:
            layers.append(_inverted(block, strides.get(stage, 1) if number == "0" else 1))
    layers += [unit(weights["last"]), nn.ReLU6()]
    return nn.Sequential(*layers, *_head(weights["head"]))


def _inverted(block: Tree, stride: int) -> nn.Module:
    layers: list[nn.Module] = []
    if "wider" in block:
        layers += [unit(block["wider"]), nn.ReLU6()]
    channels = block["depthwise"]["conv"]["weights"].shape[-1]
    narrower = unit(block["narrower"])
    layers += [unit(block["depthwise"], stride, channels), nn.ReLU6(), narrower]
    inputs = block["wider"]["conv"]["weights"].shape[2] if "wider" in block else channels
    whole = nn.Sequential(*layers)
    if stride == 1 and inputs == block["narrower"]["conv"]["weights"].shape[-1]:
        return Residual(whole, nn.Identity(), nn.Identity())
    return whole


def vgg(weights: Tree) -> nn.Module:
    layers: list[nn.Module] = []
    blocks = [name for name in weights if "." in name]
    for name, following in zip(blocks, [*blocks[1:], ""], strict=True):
        layers += [convolution(weights[name]), nn.ReLU()]
        if name.partition(".")[0] != following.partition(".")[0]:
            layers.append(nn.MaxPool2d(2))
    first = weights["first"]
    channels = weights[blocks[-1]]["bias"].size
    layers += [nn.Flatten(), linear(_channels_ahead(first["weights"], channels), first["bias"])]
    layers += [nn.ReLU(), dense(weights["second"]), nn.ReLU(), dense(weights["last"])]
    return nn.Sequential(*layers)


def _channels_ahead(weights: Any, channels: int) -> Any:
    """Weights of (rows x columns x channels, outputs), in the order that PyTorch flattens in."""
    outputs = weights.shape[1]
    by_channel = weights.reshape(-1, channels, outputs).transpose(1, 0, 2)
    return by_channel.reshape(-1, outputs)


class Attention(nn.Module):
    def __init__(self, layer: Tree, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (
            linear(layer[f"w{n}"], layer[f"b{n}"]) for n in "qkvo"
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (self._by_head(f(x)) for f in (self.query, self.key, self.value))
        heads = functional.scaled_dot_product_attention(query, key, value)
        y: torch.Tensor = self.output(heads.transpose(1, 2).reshape(1, x.shape[1], -1))
        return y

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, x.shape[1], self.heads, x.shape[2] // self.heads).transpose(1, 2)


def bert(weights: Tree) -> nn.Module:
    layers: list[nn.Module] = []
    for layer in numbered(weights):
        hidden = [linear(layer["w1"], layer["b1"]), nn.GELU(), linear(layer["w2"], layer["b2"])]
        norms = [layer_norm(layer[f"g{n}"], layer[f"n{n}"]) for n in (1, 2)]
        layers.append(Residual(Attention(layer), nn.Identity(), norms[0]))
        layers.append(Residual(nn.Sequential(*hidden), nn.Identity(), norms[1]))
    return nn.Sequential(*layers)


def layer_norm(gain: Any, bias: Any) -> nn.LayerNorm:
    made = nn.LayerNorm(len(gain), eps=1e-12)
    made.weight, made.bias = parameter(gain), parameter(bias)
    return made


def perceptron(weights: Tree) -> nn.Module:
    layers: list[nn.Module] = []
    for pair in numbered(weights):
        layers += [linear(pair["0"], pair["1"]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


BUILDERS = {
    "resnet18": resnet, "resnet50": resnet, "vgg19": vgg, "mobilenet": mobilenet,
    "bert_base": bert, "mlp": perceptron,
}  # fmt: skip

"""ResNet-18 for one 224 x 224 image as a module of PyTorch, channels first or channels last, f32.

    tune run examples/resnet18_torch.py:model --budget 3m
    tune run examples/resnet18_torch.py:channels_last --budget 3m

Weights are random: times do not depend on them, and nothing has to be downloaded.  It needs torch:
`pip install 'hlotune[torch]'`.
"""

import torch
from torch import nn

STAGES = (64, 128, 256, 512)
"""Channels of each stage of two blocks; every stage but the first halves the image."""
CLASSES = 1000


class Block(nn.Module):
    """Two convolutions, and past them x itself or, where the shape changes, a 1x1 convolution."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(channels, width, 3, stride)
        self.second = _convolution(width, width, 3, 1)
        self.short = _convolution(channels, width, 1, stride) if channels != width else None
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.relu(self.first(x)))
        made: torch.Tensor = self.relu(y + (x if self.short is None else self.short(x)))
        return made


def resnet18() -> nn.Module:
    """(n, 3, 224, 224) to (n, 1000) logits, in evaluation."""
    layers: list[nn.Module] = [
        _convolution(3, STAGES[0], 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = STAGES[0]
    for stage, width in enumerate(STAGES):
        layers += [Block(channels, width, 1 if stage == 0 else 2), Block(width, width, 1)]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
    return nn.Sequential(*layers).eval()


def model(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Channels first, as PyTorch has images unless it is told otherwise."""
    torch.manual_seed(0)
    return resnet18(), (torch.randn(batch, 3, 224, 224),)


def channels_last() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The same shapes, with channels next to each other in memory."""
    module, (image,) = model()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module, (image.to(memory_format=torch.channels_last),)


def small() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The same network on an image of 32 x 32."""
    module, _ = model()
    return module, (torch.randn(1, 3, 32, 32),)


def _convolution(channels: int, width: int, size: int, stride: int) -> nn.Module:
    """With batch norm behind it; padded so that a stride of 1 keeps the image's size."""
    convolution = nn.Conv2d(channels, width, size, stride, size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight)
    norm = nn.BatchNorm2d(width)
    nn.init.uniform_(norm.weight, 0.6, 1.0)
    nn.init.normal_(norm.bias, 0, 0.1)
    nn.init.normal_(norm.running_mean, 0, 0.1)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 1.6, 2.4)  # type: ignore[arg-type]
    return nn.Sequential(convolution, norm)

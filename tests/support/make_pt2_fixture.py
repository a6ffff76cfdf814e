"""Makes `tests/fixtures/network.pt2`, a file of torch.export, in an environment that has torch:

.venv-oldest/bin/python -m tests.support.make_pt2_fixture
"""

from typing import Any

import torch
from torch import nn

from tests.support.tree import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "network.pt2"


class Network(nn.Module):
    """(1, 3, 9, 9) images and four numbers of rows to several tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.normalization = nn.BatchNorm2d(4)
        self.rows = nn.Embedding(6, 8)
        self.product = nn.Linear(16, 8)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> Any:
        hidden = torch.relu(self.normalization(self.convolution(image)))
        pooled = nn.functional.max_pool2d(hidden, 2).flatten(1)
        scores = torch.softmax(self.product(pooled) + self.rows(ids), -1)
        return {"scores": scores, "best": scores.argmax(-1), "sum": hidden.sum((2, 3))}


def main() -> None:
    torch.manual_seed(0)
    example = torch.randn(1, 3, 9, 9), torch.tensor([0, 2, 5, 1])
    torch.export.save(torch.export.export(Network().eval(), example), FIXTURE)


if __name__ == "__main__":
    main()

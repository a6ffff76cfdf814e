"""A plain network on summaries: what a nest's numbers alone are worth to one."""

import torch

from hlotune.costmodel.inputs import Inputs, as_summaries
from hlotune.costmodel.neural import Module, Neural, Scale
from hlotune.costmodel.training_budget import Effort

HIDDEN = 256


def mlp(effort: Effort = "batch") -> Neural:
    """Reads summaries."""
    return Neural("mlp", "summary", Mlp, effort)


class Mlp(Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.scale = Scale(columns)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(columns, HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, 1),
        )  # fmt: skip

    def prepare(self, inputs: Inputs) -> None:
        self.scale.prepare(as_summaries(inputs))

    def score(self, inputs: Inputs) -> torch.Tensor:
        scores: torch.Tensor = self.layers(self.scale(as_summaries(inputs)))
        return scores[:, 0]

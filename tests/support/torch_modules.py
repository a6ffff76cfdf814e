"""Functions as modules of PyTorch, and their results held against PyTorch's."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


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


def flattened(results: Any) -> list[Any]:
    parts = [list(r) if isinstance(r, tuple) else [r] for r in results]
    return [tensor for part in parts for tensor in part]

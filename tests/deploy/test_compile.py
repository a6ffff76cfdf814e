"""`hlotune.compile`: a module of PyTorch with tuned kernels, called from PyTorch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hlotune
from hlotune.deploy.torch_variants import SAMPLES, sampled
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from tests.support.applied import final, recorded

pytestmark = pytest.mark.torch


def test_a_compiled_module_runs_tuned_kernels_and_sees_new_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    x, database = torch.randn(48, 64), tmp_path / "tuning.db"
    compiled = hlotune.compile(module, database=database)
    forward: Any = compiled.forward
    assert forward.explain(x) == ()
    forward.clear_cache()
    (site, *_) = sites(hlotune.load(module, x))
    stage = compute_of(graph_of(site.kernel)).stages[0].name
    split = Schedule("direct", (Split(stage, "i0", (4,)),))
    recorded(database, {site: final(split, default_s=2e-4, tuned_s=1e-4)})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
        statuses = [e.status for e in forward.explain(x)]
        odd = torch.randn(48 * 64 + 1)[1:].view(48, 64)  # four bytes behind an aligned place
        turned = torch.randn(64, 48).T
        for one in (odd, turned, x.expand(48, 64)):
            torch.testing.assert_close(compiled(one), module(one), rtol=1e-4, atol=1e-5)
        module.load_state_dict({n: 2 * v for n, v in module.state_dict().items()})
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert "tuned" in statuses
    assert compiled(x).requires_grad
    assert compiled.state_dict().keys() == module.state_dict().keys()


def test_what_is_no_module_is_not_compiled() -> None:
    with pytest.raises(ProgramError, match=r"a torch\.nn\.Module, got function"):
        hlotune.compile(test_what_is_no_module_is_not_compiled)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64, torch.bool])
def test_samples_of_a_parameter_lie_in_its_own_memory(kind: torch.dtype) -> None:
    images = torch.randn(8, 3, 5, 5).to(kind)
    for tensor in (images, images.to(memory_format=torch.channels_last), images[0, 0, 0, 0]):
        view = sampled(torch.nn.Parameter(tensor, requires_grad=False))
        assert view is not None and len(view) <= SAMPLES
        before = view.tobytes()
        tensor.logical_not_() if kind == torch.bool else tensor.add_(1)
        assert view.tobytes() != before
    assert sampled(images[:, :, ::2]) is None and sampled(images[:0]) is None

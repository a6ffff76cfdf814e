"""The backend "hlotune" of `torch.compile`: graphs that Dynamo captures run tuned kernels."""

import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hlotune
from hlotune.deploy import torch_variants
from hlotune.deploy.dynamo import Subgraph, backend
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from tests.support.applied import final, recorded
from tests.support.tree import ROOT

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Halves(nn.Module):
    """Two graphs, as Dynamo has it: it breaks between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU())
        self.second = nn.Linear(96, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        torch._dynamo.graph_break()
        made: torch.Tensor = self.second(h)
        return made


def with_records(database: Path, *programs: Program) -> Path:
    """A database in which the first kernel of each program is faster with another schedule."""
    finals = {}
    for program in programs:
        site = sites(program)[0]
        stage = compute_of(graph_of(site.kernel)).stages[0].name
        split = Schedule("direct", (Split(stage, "i0", (4,)),))
        finals[site] = final(split, default_s=2e-4, tuned_s=1e-4)
    return recorded(database, finals)


class Compiled:
    """A function compiled by the backend, with the graphs that Dynamo gave it."""

    def __init__(self, function: Any, database: Path, **settings: Any) -> None:
        self.graphs: list[Subgraph] = []

        def kept(graph: Any, examples: Any) -> Any:
            made = backend(graph, examples, options={"database": database, **settings})
            assert isinstance(made, Subgraph)
            self.graphs.append(made)
            return made

        self.call: Any = torch.compile(function, backend=kept)

    @property
    def tuned(self) -> list[int]:
        """How many variants of each graph have tuned kernels."""
        return [sum(v is not None for v in g.variants._known.values()) for g in self.graphs]


def test_graphs_around_a_break_run_tuned_kernels_for_each_batch_and_see_new_weights(
    tmp_path: Path,
) -> None:
    module, x, y = Halves().eval(), torch.randn(48, 64), torch.randn(16, 64)
    with torch.no_grad():
        loaded = [
            hlotune.load(part, t)
            for b in (x, y)
            for part, t in ((module.first, b), (module.second, module.first(b)))
        ]
        compiled = Compiled(module, with_records(tmp_path / "tuning.db", *loaded))
        names = module.state_dict().keys()
        torch.testing.assert_close(compiled.call(x), module(x), rtol=1e-4, atol=1e-5)
        assert compiled.tuned == [1, 1]
        for batch in (y, torch.randn(5, 64), x):
            torch.testing.assert_close(compiled.call(batch), module(batch), rtol=1e-4, atol=1e-5)
        assert compiled.tuned == [1, 1, 2, 2]  # the latter two are of any batch; 5 has no records
        module.second.weight.mul_(2)
        torch.testing.assert_close(compiled.call(x), module(x), rtol=1e-4, atol=1e-5)
    assert module.state_dict().keys() == names


def test_lazily_negated_tensors_autocast_and_replaced_data_are_as_in_pytorch(
    tmp_path: Path,
) -> None:
    module, x = nn.Linear(64, 32).eval(), torch.randn(16, 64)
    database = with_records(tmp_path / "tuning.db", hlotune.load(module, x))
    with torch.no_grad():
        for call in (Compiled(module, database).call, hlotune.compile(module, database=database)):
            for given in (x, torch._neg_view(x), x.to_sparse()):
                torch.testing.assert_close(call(given), module(given), rtol=1e-4, atol=1e-5)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert call(x).dtype == torch.bfloat16
            module.weight.data = torch.randn(32, 64)
            torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-5)
            module.weight.data.mul_(2)
            torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-5)


def test_floats_that_are_others_in_each_call_are_arguments(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, x = nn.Linear(64, 32).eval(), torch.randn(16, 64)

    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        made: torch.Tensor = torch.relu(module(x)) * factor + factor
        return made

    compiled = Compiled(scaled, with_records(tmp_path / "tuning.db", hlotune.load(module, x)))
    with torch.no_grad():
        for factor in (0.5, 0.25, 0.125, 3.0):
            got, wanted = compiled.call(x, factor), scaled(x, factor)
            assert got.dtype == wanted.dtype
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert [len(g.variants._known) for g in compiled.graphs] == [1, 1]
    assert warned(caplog) == []


def test_calls_that_record_gradients_are_run_by_pytorch_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, x = nn.Sequential(nn.Linear(64, 32)).eval(), torch.randn(16, 64)
    compiled = Compiled(module, with_records(tmp_path / "tuning.db", hlotune.load(module, x)))
    for _ in range(2):
        compiled.call(x).sum().backward()
    assert module[0].weight.grad is not None
    (said,) = warned(caplog)
    assert "expected inference, got tensors whose gradients are recorded" in said


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    own = [r for r in caplog.records if r.name.startswith("hlotune")]
    return [r.getMessage() for r in own if r.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: torch.linalg.eigvals(x @ x.T).real, r"got aten\.linalg_eig\.default"),
        (lambda x: torch.dropout(x @ x.T, 0.5, True), r"dropout in training"),
        (lambda x: (x @ x.T, x[:4]), r"memory of their own, got .*view of an argument"),
        (lambda x: x.mul_(2) + 1, r"changes nothing but its results|no change of memory"),
    ],
    ids=["operation", "training", "view", "in place"],
)
def test_a_graph_that_is_refused_runs_in_pytorch_with_one_warning_that_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, function: Any, said: str
) -> None:
    database = with_records(
        tmp_path / "tuning.db", hlotune.load(nn.Linear(64, 32).eval(), torch.randn(16, 64))
    )
    compiled = Compiled(function, database)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(16, 64)
            torch.manual_seed(1)
            wanted = function(x.clone())
            torch.manual_seed(1)
            torch.testing.assert_close(compiled.call(x), wanted)
    (warning,) = warned(caplog)
    assert "PyTorch runs a graph of torch.compile" in warning
    assert re.search(said, warning), warning


def test_arguments_that_share_memory_that_is_changed_are_left_to_pytorch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, x = nn.Linear(64, 32).eval(), torch.randn(16, 64)
    database = with_records(tmp_path / "tuning.db", hlotune.load(module, x))
    compiled = Compiled(lambda x, y: (y.add_(1), module(x))[1], database)
    with torch.no_grad():
        torch.testing.assert_close(compiled.call(x, x[:]), module(x))
    (warning,) = warned(caplog)
    assert "expected no change of memory of its inputs or weights" in warning


def test_results_that_are_no_views_are_taken_and_options_are_checked(tmp_path: Path) -> None:
    module, x = nn.Linear(64, 32).eval(), torch.randn(16, 64)
    compiled = Compiled(
        lambda x: module(x).reshape(-1),
        with_records(tmp_path / "tuning.db", hlotune.load(module, x)),
        numerics="strict",
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled.call(x), module(x).reshape(-1), rtol=1e-4, atol=1e-5)
    assert compiled.tuned == [0]  # the record is of standard numerics
    with pytest.raises(ProgramError, match=r"options database and numerics .*, got mode; leave"):
        backend(None, (), options={"mode": "fast"})
    with pytest.raises(ValueError, match="setting of numerics"):
        backend(None, (), options={"numerics": "loose"})


def test_a_module_called_with_ever_new_shapes_is_left_to_pytorch_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_variants, "MOST_VARIANTS", 2)
    module = nn.Linear(64, 32).eval()
    database = with_records(tmp_path / "tuning.db", hlotune.load(module, torch.randn(4, 64)))
    compiled = hlotune.compile(module, database=database)
    with torch.no_grad():
        for batch in (4, 5, 6, 7, 4):
            x = torch.randn(batch, 64)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    (warning,) = warned(caplog)
    assert "Linear for further shapes of arguments, as 2 of them were looked up" in warning


def test_torch_finds_the_backend_by_its_name_where_hlotune_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.backends import registry

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (named,) = project["entry-points"]["torch_dynamo_backends"].items()
    info = tmp_path / "hlotune-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hlotune\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{' = '.join(named)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._discover_entrypoint_backends.cache_clear()
    registry._lazy_import.cache_clear()
    assert "hlotune" in registry.list_backends()
    assert registry.lookup_backend("hlotune") is backend
    module, x = nn.Linear(64, 32).eval(), torch.randn(16, 64)
    options: Any = {"database": str(tmp_path / "none.db")}
    compiled: Any = torch.compile(module, backend="hlotune", options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))

"""Files of `torch.export.save` are read without torch, and damaged ones are one clear error."""

import shutil
import zipfile
from pathlib import Path

import pytest

from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.support.tree import ROOT

FILE = ROOT / "tests" / "fixtures" / "network.pt2"
GRAPH = "network/models/model.json"


def with_graph(folder: Path, graph: bytes, kind: int) -> Path:
    path = folder / "network.pt2"
    with zipfile.ZipFile(FILE) as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            chosen = name == GRAPH
            made.writestr(
                name, graph if chosen else archive.read(name),
                kind if chosen else zipfile.ZIP_STORED,
            )  # fmt: skip
    return path


def test_a_file_is_read_without_torch(tmp_path: Path) -> None:
    program = load(shutil.copy(FILE, tmp_path))
    assert [str(t) for t in program.graph.argument_types] == [
        "tensor<1x3x9x9xf32>",
        "tensor<4xi64>",
    ]
    assert len(program.graph.results) == 3


@pytest.mark.parametrize(
    "graph, kind, message",
    [
        (b" " * 99, zipfile.ZIP_DEFLATED, "got models/model.json compressed or larger than the"),
        (b"[" * 100_000, zipfile.ZIP_STORED, "got models/model.json that is no JSON"),
    ],
)
def test_a_graph_that_is_none_is_said_once(
    graph: bytes, kind: int, message: str, tmp_path: Path
) -> None:
    path = with_graph(tmp_path, graph, kind)
    with pytest.raises(ProgramError, match=message) as raised:
        load(path)
    assert str(raised.value).count("expected") == 1

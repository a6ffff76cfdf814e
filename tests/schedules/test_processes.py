"""Processes that hlotune starts import nothing from the working folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hlotune.hlo.frontends.checked_parse import ParseProcess
from hlotune.measure.trial import Failure
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.early_start import BUILD_WORKER, DEVICE_WORKER, device_environment
from hlotune.schedules import processes
from tests.support.tree import ROOMS, ROOT, modules

HOSTILE = "open(__file__ + '.ran', 'w').close(); raise SystemExit('a file of the user ran')"
STARTED: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "build": (BUILD_WORKER, {}),
    "device": (DEVICE_WORKER, device_environment()),
}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with files named like modules that every process of ours imports."""
    for name in ("queue", "struct", "json", "numpy", "sitecustomize", "hlotune"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    return tmp_path


@pytest.fixture(params=["", "folder"])
def working(
    request: pytest.FixtureRequest, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The hostile folder is the working one, and in the path as Python puts it there."""
    entry = "" if request.param == "" else str(hostile)
    monkeypatch.chdir(hostile)
    monkeypatch.setattr(sys, "path", [entry, *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{entry}")
    yield hostile
    assert not list(hostile.glob("*.ran"))


@pytest.mark.parametrize("name", STARTED)
def test_a_worker_runs_no_file_of_the_working_folder(name: str, working: Path) -> None:
    channel = Channel(*STARTED[name])
    try:
        reply = channel.request(Message({"do": "what no worker does"}), 60.0)
    finally:
        channel.close()
    assert isinstance(reply, Failure)
    assert reply.message.endswith("KeyError: 'what no worker does'")  # it was ready for requests


def test_the_process_that_parses_runs_no_file_of_the_working_folder(working: Path) -> None:
    (working / "program.mlir").write_text("func.func @main() { return }")
    process = ParseProcess()
    try:
        with open("program.mlir", "rb") as file:
            assert process.normal_form(Path("program.mlir"), file)
    finally:
        process.close()


def test_a_file_before_the_standard_library_does_not_take_its_place(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(hostile), *sys.path])
    code = "import queue, struct, json; print('as ever')"
    environment = {**os.environ, "PYTHONPATH": processes.python_path()}
    (hostile / "sitecustomize.py").unlink()
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "as ever\n", done.stderr


def test_the_working_folder_stays_where_hlotune_lies_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", ["", *(p for p in sys.path if p not in ("", str(ROOT)))])
    monkeypatch.setattr(processes, "__file__", str(ROOT / "hlotune/schedules/processes.py"))
    assert str(ROOT) in processes.python_path().split(os.pathsep)


def test_every_command_of_a_python_process_is_made_in_one_place() -> None:
    naming = [f for room in ROOMS for f in modules(room) if "sys.executable" in read(f)]
    assert [str(f) for f in naming] == ["schedules/processes.py"]


def test_processes_are_started_in_known_places() -> None:
    starting = [f for room in ROOMS for f in modules(room) if "subprocess." in read(f)]
    assert [str(f) for f in starting] == [
        "hlo/frontends/checked_parse.py",
        "codegen/pallas/assembler.py",
        "measure/machine/devices.py",
        "measure/workers/channel.py",
        "tuning_logs/page/regenerated.py",
        "deploy/rivals/line_process.py",
        "cli/xla.py",
    ]


def read(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")

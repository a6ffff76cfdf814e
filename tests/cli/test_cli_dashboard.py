"""`tune dashboard`: its start, what it is refused, and its end."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.dashboard import serving
from tests.support.recorded import filled


@pytest.fixture
def path(tmp_path: Path) -> str:
    filled(tmp_path / "tuning.db").close()
    return str(tmp_path / "tuning.db")


def test_it_answers_on_loopback_alone_until_ctrl_c(path: str) -> None:
    command = [sys.executable, "-m", "hlotune", "dashboard", "--port", "0", "--db", path]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        said = served.stdout.readline()
        address = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", said)
        assert address, said
        with urllib.request.urlopen(address[1], timeout=10) as answer:
            assert "mlp" in answer.read().decode()
            assert answer.headers["Server"] == "hlotune"
        served.send_signal(signal.SIGINT)
        out, errors = served.communicate(timeout=20)
    assert (served.returncode, out, errors) == (0, "dashboard: ended\n", "")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(["dashboard", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tune: ") and error.count("\n") == 1
    return error


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str], path: str) -> None:
    with serving.bound(0) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"
        port = taken.getsockname()[1]
        said = refused(capsys, "--port", str(port), "--db", path)
    assert f"expected port {port} of 127.0.0.1 to be free, got" in said
    assert "name another with --port" in said


def test_a_port_is_free_again_at_once() -> None:
    with serving.bound(0) as first:
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), first.accept()[0]:
            pass
    serving.bound(port).close()


def test_a_database_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "expected a file, found none" in refused(capsys, "--db", str(tmp_path / "none.db"))


@pytest.mark.parametrize("name", ["werkzeug", "matplotlib"])
def test_without_a_library_the_error_names_the_extra(
    capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    said = refused(capsys, "--db", path)
    assert f"expected {name} for the dashboard, found none" in said
    assert "pip install 'hlotune[dashboard]'" in said

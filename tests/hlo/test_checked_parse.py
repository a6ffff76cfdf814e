"""A process of its own parses program files first: damage ends that, and is one error here."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hlotune.cli.loading import begin_loading
from hlotune.hlo.frontends import checked_parse
from hlotune.hlo.frontends.checked_parse import Limits, failure, limits_of, normal_form_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from tests.hlo.test_program import MATMUL
from tests.support.tree import ROOT

DAMAGED = sorted((ROOT / "tests/fixtures/damaged").iterdir())
TENSOR = "tensor<4xf32>"


@pytest.fixture
def matmul(tmp_path: Path) -> Path:
    path = tmp_path / "matmul.mlir"
    path.write_text(MATMUL)
    return path


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[checked_parse.ParseProcess]:
    """One that this test alone asks, not yet begun."""
    process = checked_parse.ParseProcess()
    monkeypatch.setattr(checked_parse, "shared_process", process)
    yield process
    process.close()


def limit(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    monkeypatch.setattr(checked_parse, "limits_of", lambda file_bytes: limits)


def doubling(levels: int) -> str:
    """A program in which each function calls the one below twice."""

    def function(name: str, body: str, result: str) -> str:
        head = f"func.func @{name}(%a: {TENSOR}) -> {TENSOR}"
        return f"{head} {{\n{body}return %{result} : {TENSOR} }}\n"

    def calls(name: str, callee: str, count: int) -> str:
        values = "abc"[: count + 1]
        body = "".join(
            f"%{y} = func.call @{callee}(%{x}) : ({TENSOR}) -> {TENSOR}\n"
            for x, y in pairwise(values)
        )
        return function(name, body, values[-1])

    lowest = function("f0", f"%b = stablehlo.tanh %a : {TENSOR}\n", "b")
    higher = [calls(f"f{i + 1}", f"f{i}", 2) for i in range(levels)]
    return "".join([lowest, *higher, calls("main", f"f{levels}", 1)])


@pytest.mark.parametrize("path", DAMAGED, ids=[p.name for p in DAMAGED])
def test_a_damaged_file_is_one_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, Limits(1.0, 10**9))
    with pytest.raises(ProgramError) as refused:
        load(path)
    assert str(refused.value).isprintable()


def test_a_file_that_is_read_is_the_program_that_it_was(matmul: Path) -> None:
    assert mlir.parse(normal_form_of(matmul)).text().count("stablehlo.dot") == 1


def test_a_process_serves_several_files(
    matmul: Path, own_process: checked_parse.ParseProcess
) -> None:
    first = normal_form_of(matmul)
    number = own_process.process_id
    with pytest.raises(ProgramError, match="so it is not text in UTF-8"):
        normal_form_of(ROOT / "tests/fixtures/damaged/not_utf8.mlir")
    assert normal_form_of(matmul) == first
    assert own_process.process_id == number is not None


def test_after_a_file_that_ends_the_process_another_one_begins(
    matmul: Path, own_process: checked_parse.ParseProcess
) -> None:
    with pytest.raises(ProgramError, match=r"MLIR ends its process \(SIGABRT\): Check failed: "):
        normal_form_of(ROOT / "tests/fixtures/damaged/parameter_number.hlo")
    assert own_process.process_id is None
    assert normal_form_of(matmul)


def test_a_process_that_has_left_is_no_error(
    matmul: Path, own_process: checked_parse.ParseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = "from hlotune.hlo.frontends import parse_process as p; p.IDLE_S = 0.1; p.main()"
    with monkeypatch.context() as patched:
        patched.setattr(checked_parse, "COMMAND", (sys.executable, "-c", hasty))
        first = normal_form_of(matmul)
    number = own_process.process_id
    wait_for_the_end_of(number)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "poll", lambda _: None)  # it leaves a moment later
        assert normal_form_of(matmul) == first
    assert own_process.process_id not in (number, None)


def wait_for_the_end_of(number: int | None) -> None:
    until = time.monotonic() + 20
    while not Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].startswith(" Z"):
        assert time.monotonic() < until, "the process stays"
        time.sleep(0.02)


def test_what_takes_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.mlir"
    path.write_text(doubling(16))
    limit(monkeypatch, Limits(0.1, 10**9))
    with pytest.raises(ProgramError, match=r"to be read within 0.1 s, got one that takes longer"):
        normal_form_of(path)


def test_a_process_that_only_sleeps_is_ended(
    matmul: Path, own_process: checked_parse.ParseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, Limits(0.1, 10**9))
    begin = "import socket, time; end = socket.socket(fileno=0); end.send(b'{}'); time.sleep(60)"
    monkeypatch.setattr(checked_parse, "COMMAND", (sys.executable, "-c", begin))
    with pytest.raises(ProgramError, match=r"within 0.1 s, got one that takes longer"):
        normal_form_of(matmul)
    assert own_process.process_id is None


def test_what_needs_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.mlir"
    path.write_text(MATMUL + "//" + " " * 10**8 + "\n")
    limit(monkeypatch, Limits(10.0, 10**7))
    with pytest.raises(ProgramError, match=r"within 0.01 GB of memory, got one that needs more"):
        normal_form_of(path)


def test_calls_that_double_at_each_level_are_refused_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "calls.mlir"
    path.write_text(doubling(60))
    with pytest.raises(ProgramError, match=r"at most 100,000 operations in @f17, got 131,072 once"):
        load(path)
    path.write_text(doubling(3))
    assert len(load(path).graph.ops) == 8


def test_limits_grow_with_the_file() -> None:
    assert limits_of(0) == Limits(8.0, 10**9)
    assert limits_of(3 * 10**8) == Limits(14.0, 25 * 10**8)


@pytest.mark.parametrize(
    ("code", "said", "message"),
    [
        (-signal.SIGSEGV, "", r"in a.mlir, got one at which MLIR ends its process \(SIGSEGV\);"),
        (3, "LLVM ERROR: \x07bad", r"\(exit code 3\): LLVM ERROR: \?bad; the file is damaged"),
        (-signal.SIGXCPU, "", r"size of a.mlir to be read within 8 s, got one that takes longer"),
        (-signal.SIGKILL, "", r"within 1 GB of memory, got one that needs more; .* free memory"),
        (-signal.SIGABRT, "what():  std::bad_alloc", r"within 1 GB of memory, got one that needs"),
    ],
)  # fmt: skip
def test_how_a_process_ended_is_said_in_words(code: int, said: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        raise failure(Path("a.mlir"), limits_of(0), code, said)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/no/such/python",), "to run a process that reads .*, got No such file.*; free memory"),
        (
            (sys.executable, "-c", "raise SystemExit('no jaxlib')"),
            "expected a process that reads .*, got none: no jaxlib; check that `import jaxlib",
        ),
    ],
)
def test_a_machine_without_such_a_process_is_an_error(
    command: tuple[str, ...],
    message: str,
    matmul: Path,
    own_process: checked_parse.ParseProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checked_parse, "COMMAND", command)
    checked_parse.begin()
    with pytest.raises(ProgramError, match=message):
        normal_form_of(matmul)
    assert own_process.process_id is None


@pytest.mark.parametrize(("argument", "begins"), [("a.mlir", True), ("a.py:f", False)])
def test_a_command_of_a_program_file_begins_the_process_before_it_imports_jax(
    argument: str, begins: bool, own_process: checked_parse.ParseProcess
) -> None:
    begin_loading(["kernels", argument, "--json"])
    assert (own_process.process_id is not None) == begins


def test_a_pipe_is_read_like_a_file(tmp_path: Path, matmul: Path) -> None:
    pipe = tmp_path / "pipe.mlir"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(MATMUL,))
    writer.start()
    assert normal_form_of(pipe) == normal_form_of(matmul)
    writer.join()


def test_a_device_that_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zero.mlir").symlink_to("/dev/zero")
    monkeypatch.setattr(checked_parse, "MOST_BYTES_OF_A_PIPE", 1 << 22)
    with pytest.raises(ProgramError, match=r"expected a program file, got more than 4 MB for"):
        normal_form_of(tmp_path / "zero.mlir")


def test_calls_may_be_thousands_deep(tmp_path: Path) -> None:
    levels = 3000
    body = "".join(
        f"func.func private @f{n}(%a: {TENSOR}) -> {TENSOR} {{\n"
        f"%b = func.call @f{n + 1}(%a) : ({TENSOR}) -> {TENSOR}\nreturn %b : {TENSOR} }}\n"
        for n in range(levels)
    )
    text = doubling(0).replace("@f0", f"@f{levels}").replace(f"call @f{levels}", "call @f0")
    path = tmp_path / "deep.mlir"
    path.write_text(body + text)
    assert len(load(path).graph.ops) == 1
    path.write_text(
        body + text.replace("stablehlo.tanh %a :", f"func.call @f0(%a) : ({TENSOR}) ->")
    )
    with pytest.raises(
        ProgramError, match=r"without recursion, got main -> .* \.\.\. .* -> f0; write"
    ):
        load(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="got Is a directory for"):
        normal_form_of(tmp_path)


def test_the_process_begins_without_jax() -> None:
    code = "import hlotune.hlo.frontends.parse_process, sys; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_fork_has_a_process_of_its_own(matmul: Path) -> None:
    code = f"""
import os
from pathlib import Path
from hlotune.hlo.frontends.checked_parse import normal_form_of, shared_process
path = Path({str(matmul)!r})
first, number = normal_form_of(path), shared_process.process_id
if (child := os.fork()) == 0:
    from hlotune.hlo.frontends.checked_parse import shared_process
    assert normal_form_of(path) == first and shared_process.process_id != number
    shared_process.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert normal_form_of(path) == first and shared_process.process_id == number
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

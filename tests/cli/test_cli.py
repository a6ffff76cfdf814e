"""The command line from outside: help, exit codes, and one clear line for each misuse."""

import json
import platform
import re
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import pytest

import hlotune
from hlotune.cli import printing
from hlotune.cli.main import is_loading_an_extension, run_command
from hlotune.tuning_logs.default_path import database_path
from tests.support.commands import tune
from tests.support.tree import ROOT

COMMANDS = [
    "run",
    "resume",
    "bench",
    "apply",
    "kernels",
    "show",
    "explain",
    "report",
    "targets",
    "db ls",
    "db stats",
    "db export",
    "db import",
    "db merge",
    "db prune",
    "db check",
    "model train",
    "model eval",
    "model export",
]


def test_the_version_names_all_that_a_report_of_a_problem_should() -> None:
    done = tune("--version")
    assert done.returncode == 0
    assert done.stdout == (
        f"hlotune {hlotune.__version__}, jax {version('jax')}, jaxlib {version('jaxlib')}, "
        f"Python {platform.python_version()}\n"
    )


def refused(*arguments: str) -> str:
    """What a misused command says: nothing on stdout, one line of error, no traceback."""
    done = tune(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("tune: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_help_lists_every_command() -> None:
    done = tune("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command.split()[0]} ", done.stdout, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_of_itself_and_json(command: str) -> None:
    done = tune(*command.split(), "--help")
    assert done.returncode == 0
    assert f"Example: tune {command}" in " ".join(done.stdout.split())
    assert "--json" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8")
    group, _, verb = command.partition(" ")
    assert re.search(rf"`tune {group}.*\b{verb}\b", table)


def test_no_arguments_is_misuse_and_shows_help() -> None:
    done = tune()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "tune: missing argument 'PROGRAM'; see `tune run --help`\n"),
        ("rnu", "tune: no such command 'rnu'"),
        ("run a.py:b --bugdet 5s", "tune: no such option: --bugdet"),
        ("run a.py:b --trials 0", "tune: invalid value for '--trials'"),
        ("run a.py:b --searcher magic", "'--searcher': 'magic' is not one of 'annealing', "),
        ("run a.py:b --seed 9223372036854775808", "tune: invalid value for '--seed'"),
        ("model export -o missing/x.json", "expected to write to missing/x.json, got no folder"),
        ("db lss", "see `tune db --help`\n"),
    ],
)
def test_a_command_line_that_makes_no_sense_gets_one_line(arguments: str, message: str) -> None:
    assert message in refused(*arguments.split())


def test_ctrl_c_says_so_however_early_it_comes(tmp_path: Path) -> None:
    factory = tmp_path / "slow.py"
    factory.write_text("def model():\n  raise KeyboardInterrupt\n")
    done = tune("run", f"{factory}:model", "--budget", "5s", "--db", str(tmp_path / "a.db"))
    assert done.returncode == 130
    assert done.stderr == "tune: interrupted; what was recorded until then stays\n"
    early = "import sys, hlotune.__main__ as m; sys.modules['hlotune.cli.main'] = X(); m.main()"
    lazy = "class X:\n  def __getattr__(self, name): raise KeyboardInterrupt\n" + early
    ended = subprocess.run(
        [sys.executable, "-c", lazy], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "tune: interrupted before anything began\n")


def test_ctrl_c_is_not_lost_where_python_can_raise_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n"
        "class Swallowing:\n"
        "  def __del__(self):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.01)\n"
        "def model():\n"
        "  Swallowing()\n"
        "  time.sleep(30)\n"
    )
    done = tune("kernels", f"{tmp_path / 'slow.py'}:model")
    said = "tune: interrupted; what was recorded until then stays\n"
    assert (done.returncode, done.stderr) == (130, said)


def test_ctrl_c_waits_while_machine_code_of_a_library_is_set_up() -> None:
    def loading(self: object) -> bool:
        return is_loading_an_extension(sys._getframe())

    assert loading(ExtensionFileLoader("library", "library.so"))
    assert not loading(SourceFileLoader("library", "library.py"))


def test_what_a_library_makes_of_ctrl_c_is_an_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half.py").write_text("raise ImportError('half a library')\n")
    command = ["kernels", f"{tmp_path / 'half.py'}:model"]
    assert run_command(command, interrupts=[2]) == 130
    assert capsys.readouterr().err == "tune: interrupted; what was recorded until then stays\n"
    assert run_command(command) == 2
    missing = ["db", "ls", "--db", str(tmp_path / "missing.db")]
    assert run_command(missing, interrupts=[2]) == 2


def test_run_refuses_a_budget_of_zero() -> None:
    assert "longer than nothing" in refused("run", "examples/mlp.py:model", "--budget", "0s")


def test_run_refuses_a_budget_together_with_trials() -> None:
    message = refused("run", "examples/mlp.py:model", "--budget", "5s", "--trials", "3")
    assert "--budget or --trials" in message


def test_run_refuses_the_target_of_another_machine() -> None:
    message = refused("run", "examples/mlp.py:model", "--target", "0123456789abcdef")
    assert "target of this machine" in message and "0123456789abcdef" in message


def test_run_refuses_a_target_that_is_no_device_and_no_fingerprint() -> None:
    message = refused("run", "examples/mlp.py:model", "--target", "gpu")
    assert "expected a device of cuda:" in message
    assert "or the fingerprint of this machine's CPU, got 'gpu'; `tune targets` shows" in message


def test_run_refuses_a_file_that_is_not_there() -> None:
    message = refused("run", "missing.py:model", "--budget", "1s")
    assert "expected a Python file missing.py, found none; check the path" in message


def test_run_refuses_a_function_that_is_not_there(tmp_path: Path) -> None:
    message = refused("run", "examples/mlp.py:other", "--db", str(tmp_path / "a.db"))
    assert "other" in message


@pytest.mark.parametrize("command", ["run", "explain", "bench"])
def test_a_database_that_is_a_folder_is_refused(command: str, tmp_path: Path) -> None:
    message = refused(command, "examples/mlp.py:model", "--database", str(tmp_path))
    assert "expected a file, got a folder" in message


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("not a database at all\n" * 100, encoding="utf-8")
    assert "file of another kind" in refused("db", "ls", "--database", str(tmp_path / "notes.db"))


@pytest.mark.skipif(sys.platform != "linux", reason="the device is Linux's")
def test_a_device_is_no_database() -> None:
    message = refused("run", "examples/mlp.py:model", "--trials", "1", "--db", "/dev/null")
    assert "expected a file, got a device or a pipe; name another path" in message


def test_a_traceback_appears_when_debugging() -> None:
    done = tune("run", "missing.py:model", HLOTUNE_DEBUG="1")
    assert "Traceback" in done.stderr


def test_targets_prints_the_fingerprint_that_run_accepts() -> None:
    from hlotune.measure.machine.targets import host_target

    done = tune("targets", "--json")
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["target"]["fingerprint"] == host_target().fingerprint
    assert host_target().fingerprint in tune("targets").stdout


def test_targets_refuses_more_threads_than_there_are() -> None:
    assert "threads" in refused("targets", "--threads", "99999")


def test_run_refuses_a_budget_that_is_no_time() -> None:
    assert "expected a budget like 90s" in refused(
        "run", "examples/mlp.py:model", "--budget", "soon"
    )


def test_run_refuses_an_argument_type_that_is_none(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    message = refused("run", "examples/mlp.py:forward", "--arg", "f32(8)", "--db", database)
    assert "expected an argument type like f32[8,784]" in message


def test_run_refuses_a_model_file_that_holds_none(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_text("no model")
    options = ("--model-file", str(tmp_path / "m.npz"), "--db", str(tmp_path / "a.db"))
    message = refused("run", "examples/mlp.py:model", *options)
    assert "expected a file of a cost model" in message


def test_the_database_is_the_option_then_the_variable_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HLOTUNE_DB", raising=False)
    assert database_path(None) == tmp_path / "cache" / "hlotune" / "tuning.db"
    monkeypatch.setenv("HLOTUNE_DB", str(tmp_path / "named.db"))
    assert database_path(None) == tmp_path / "named.db"
    assert database_path(Path("chosen.db")) == Path("chosen.db")


def test_choices_are_those_that_the_rooms_offer() -> None:
    from hlotune.cli.options import Numerics
    from hlotune.cli.run import Model, Searcher
    from hlotune.costmodel.model import MODELS
    from hlotune.schedules import numerics
    from hlotune.search.searchers.searcher import SEARCHERS

    assert set(get_args(Searcher)) == set(SEARCHERS)
    assert set(get_args(Model)) == set(MODELS)
    assert get_args(get_args(Numerics)[0]) == get_args(numerics.Numerics)


@pytest.mark.parametrize(
    ("count", "base", "text"),
    [(1.234e9, 1000, "1.234 GB"), (32768, 1024, "32 KiB"), (7, 1000, "7 B")],
)
def test_sizes_are_printed_with_a_prefix_that_suits_them(
    count: float, base: int, text: str
) -> None:
    assert printing.size(count, "B", base) == text


def test_what_a_program_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import jax.numpy as jnp\nprint('imported')\n"
        "def f(x):\n  print('traced')\n  return x @ x\n"
        "def made():\n  print('called')\n  return f, (jnp.ones((8, 8)),)\n"
    )
    done = tune("kernels", f"{tmp_path / 'a.py'}:made", "--json")
    assert len(json.loads(done.stdout)["kernels"]) == 1
    said = ["imported", "called", "traced"]
    assert [
        x for x in done.stderr.splitlines() if x in said
    ] == said  # libraries may warn beside it


def test_json_refuses_numbers_that_json_has_not() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        printing.print_json({"time_s": float("nan")})


@pytest.mark.parametrize(("verb", "name"), [("import", "typo.jsonl"), ("merge", "typo.db")])
def test_taking_in_what_is_not_there_leaves_no_database(
    verb: str, name: str, tmp_path: Path
) -> None:
    database = tmp_path / "new.db"
    assert "typo" in refused("db", verb, str(tmp_path / name), "--db", str(database))
    assert not database.exists()


def test_reading_commands_make_no_folder(tmp_path: Path) -> None:
    done = tune("db", "ls", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode in (1, 2)
    assert not (tmp_path / "cache").exists()

"""Environments are made on a Python that runs, and targets of make run in the right one."""

import subprocess
from pathlib import Path

import pytest

from tests.support.tree import ROOT

NEWER, OLDER = "3.98", "3.97"
"""Versions that no machine has, so that the tests find what they made and nothing else."""


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def put_python(path: Path, version: str) -> Path:
    """A program that answers as a Python of this version does, asked `-c PROGRAM VERSION`."""
    return put(path, f'#!/bin/sh\n[ "$3" = {version} ] && echo "$0"\n')


def put_shim(path: Path) -> Path:
    """What pyenv puts into the path for each version, which runs only when that is selected."""
    return put(path, f'#!/bin/sh\necho "pyenv: {path.name}: command not found" >&2\nexit 127\n')


def interpreter(*versions: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "interpreter", *versions],
        env={"PATH": f"{path}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
    )


def test_the_first_version_that_is_there_is_taken(tmp_path: Path) -> None:
    older = put_python(tmp_path / f"python{OLDER}", OLDER)
    assert interpreter(NEWER, OLDER, path=tmp_path).stdout == f"{older}\n"
    newer = put_python(tmp_path / f"python{NEWER}", NEWER)
    assert interpreter(NEWER, OLDER, path=tmp_path).stdout == f"{newer}\n"


def test_an_interpreter_of_another_version_than_its_name_says_is_not_taken(tmp_path: Path) -> None:
    put_python(tmp_path / f"python{NEWER}", OLDER)
    assert interpreter(NEWER, path=tmp_path).returncode == 1


def test_a_python_without_a_number_counts_by_its_version(tmp_path: Path) -> None:
    found = put_python(tmp_path / "python3", NEWER)
    assert interpreter(NEWER, path=tmp_path).stdout == f"{found}\n"


def test_a_shim_that_does_not_run_leads_to_the_versions_of_pyenv(tmp_path: Path) -> None:
    """Where neither PYENV_ROOT nor HOME tells where they are."""
    put_shim(tmp_path / "shims" / f"python{NEWER}")
    found = put_python(tmp_path / "versions" / f"{NEWER}.4" / "bin" / f"python{NEWER}", NEWER)
    assert interpreter(NEWER, OLDER, path=tmp_path / "shims").stdout == f"{found}\n"


@pytest.mark.parametrize("variable", ["PYENV_ROOT", "HOME"])
def test_versions_of_pyenv_are_found_by_variables(variable: str, tmp_path: Path) -> None:
    root = tmp_path / ".pyenv"
    found = put_python(root / "versions" / f"{NEWER}.4" / "bin" / f"python{NEWER}", NEWER)
    told = {variable: str(root if variable == "PYENV_ROOT" else tmp_path)}
    assert interpreter(NEWER, path=tmp_path, **told).stdout == f"{found}\n"


def test_versions_of_pyenv_are_found_by_the_command_pyenv(tmp_path: Path) -> None:
    put_shim(tmp_path / "libexec" / "pyenv")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pyenv").symlink_to("../libexec/pyenv")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pyenv").symlink_to("../libexec/pyenv")
    found = put_python(tmp_path / "versions" / f"{NEWER}.4" / "bin" / f"python{NEWER}", NEWER)
    for folder in ("bin", "elsewhere"):
        assert interpreter(NEWER, path=tmp_path / folder).stdout == f"{found}\n"


def test_the_newest_of_two_versions_of_pyenv_is_taken(tmp_path: Path) -> None:
    for patch in (9, 10):
        last = tmp_path / "versions" / f"{NEWER}.{patch}" / "bin" / f"python{NEWER}"
        put_python(last, NEWER)
    assert interpreter(NEWER, path=tmp_path, PYENV_ROOT=str(tmp_path)).stdout == f"{last}\n"


def test_where_no_version_runs_it_says_what_to_do(tmp_path: Path) -> None:
    put_shim(tmp_path / f"python{NEWER}")
    done = interpreter(NEWER, OLDER, path=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "expected Python 3.98 3.97 with its modules venv, ensurepip and sqlite3, found none that "
        "runs; install one, or name it: BASE_PYTHON=/path/to/python3 make ...\n"
    )


def test_an_environment_of_a_named_python_that_does_not_run_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "environment", tmp_path / "made", "tune", NEWER],
        env={"PATH": "/usr/bin:/bin", "BASE_PYTHON": "/nowhere/python"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "expected BASE_PYTHON to be a Python that runs, got /nowhere/python; name another\n"
    )
    assert not (tmp_path / "made").exists()


def recipe(target: str) -> str:
    """The commands that make would run."""
    return subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    "target", ["model", "bench-eval", "bench-tuner", "curves", "test-oldest", "test-torch"]
)
def test_what_needs_torch_runs_in_the_oldest_environment(target: str) -> None:
    made = recipe(target)
    assert ".ci/environment .venv-oldest tune,models,onnx,report,optuna,dashboard 3.11" in made
    assert ".venv/bin" not in made


@pytest.mark.parametrize("target", ["demo", "bench", "bench-operators"])
def test_what_is_compared_with_the_default_runs_in_the_newest_environment(target: str) -> None:
    made = recipe(target)
    assert ".ci/environment .venv tune,onnx,report,optuna,dashboard 3.13 3.12 3.11" in made
    assert ".venv-oldest" not in made


def test_tests_that_need_torch_are_left_out_by_their_marker_and_run_in_the_oldest() -> None:
    left_out = "not slow and not torch and not browser and not frameworks and not aot"
    assert f'-m "{left_out}"' in recipe("test")
    assert '-m "not slow and (torch or smoke)"' in recipe("test-torch")
    assert '-m "slow and not torch"' in recipe("slow")
    assert '-m "slow and (torch or smoke)"' in recipe("slow")


def test_tests_that_need_frameworks_or_other_runtimes_run_in_an_environment_that_has_them() -> None:
    made = recipe("test-frameworks")
    assert ".ci/environment .venv-frameworks tune,onnx,rivals,frameworks 3.13 3.12" in made
    assert '.venv-frameworks/bin/python -m pytest -m "frameworks and not torch"\n' in made
    assert '-m "not slow and not browser and not frameworks and not aot"' in recipe("test-oldest")


AHEAD_OF_TIME = {
    "jax-cuda13-pjrt",
    "jax-cuda13-plugin",
    "libtpu",
    "nvidia-cuda-nvcc",
    "nvidia-nvjitlink",
}
"""What compiles for absent devices, in an environment of the newest JAX alone."""


def pinned(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_stacks_differ_in_what_has_no_release_for_both_and_in_what_torch_brings_alone() -> None:
    newest, oldest = pinned("constraints.txt"), pinned("constraints-oldest.txt")
    assert newest.keys() - oldest.keys() == AHEAD_OF_TIME
    assert {name for name in newest.keys() & oldest.keys() if newest[name] != oldest[name]} == {
        "flax",
        "jax",
        "jaxlib",
    }
    assert {oldest["jax"], oldest["jaxlib"]} == {"0.10.2"}
    assert "torch" in oldest and "torch" not in newest

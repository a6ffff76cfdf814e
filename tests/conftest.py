"""Fixtures and settings of all tests: golden files, JAX on the CPU, few and repeatable examples."""

import gc
import os
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hlotune.schedules.garbage import searched_seldom

os.environ["JAX_PLATFORMS"] = "cpu"  # before anything imports jax
# Before anything imports numpy or torch: two processes run tests, and threads of OpenBLAS or OpenMP
# that wait for one another beside them take twice the time of one alone.
os.environ["OMP_NUM_THREADS"] = "1"
# Shells leave Ctrl-C ignored for what they run in the background, and its children with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

searched_seldom()

# Machines that run tests are shared and slow by turns, so no test fails for the time it took.
settings.register_profile(
    "here", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
# There they are the same every time, so that more of them would find nothing in the next run.
settings.register_profile(
    "ci", settings.get_profile("here"), derandomize=True, database=None, max_examples=15
)
settings.load_profile("ci" if os.environ.get("CI") else "here")

MOST_NAMED = 10
"""Files that a header names one by one."""
GOLDEN = Path(__file__).parent / "golden"
REFERENCES = {
    "codegen", "examples", "hlo", "schedules",
    "test_accuracy", "test_artifact", "test_jit", "test_jit_kinds", "test_programs_for_devices",
    "test_rounded_operands", "test_to_onnx", "test_training_rows",
}  # fmt: skip
"""Folders and files of tests where XLA computes references and what stands around kernels, or
interprets kernels for GPUs, and is not timed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what tests got into tests/golden/"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files whose tests all need torch import it, so `-m "not torch"` does not even read them; nor
    is any other read of which no test can be chosen.
    """
    return True if collection_path in files_left_out(config.option.markexpr) else None


def pytest_collection_finish() -> None:
    """What was imported and collected lives to the end: no search for garbage looks at it again."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    names = sorted(path.name for path in files_left_out(config.option.markexpr))
    said = ", ".join(names) if len(names) < MOST_NAMED else f"{len(names)} files"
    return [f"deselected by their marks, and not read: {said}"] if names else []


@cache
def files_left_out(marks: str) -> set[Path]:
    """Those from which the expression of `-m` can choose nothing."""
    if not marks:
        return set()
    from tests.support.marks import may_be_chosen

    files = Path(__file__).parent.rglob("test_*.py")
    return {x for x in files if not may_be_chosen(x.read_text(encoding="utf-8"), marks)}


class Recording(str):
    """Equal to every text, and writes it to the golden file: what `--update-golden` hands out."""

    path: Path

    def __eq__(self, got: object) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(str(got), encoding="utf-8")
        return True

    __hash__ = str.__hash__


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or leaves a file in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="module")
def quick_references(request: pytest.FixtureRequest) -> Iterator[None]:
    """Commands and workers that tests of these folders start compile as any user's do."""
    if REFERENCES.isdisjoint({request.path.parent.name, request.path.stem}):
        yield
        return
    from tests.support.quick_compilation import quick_compilation

    with quick_compilation():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> str:
    """The text that the test expects: `assert str(nest) == golden`.

    It stands in `tests/golden/<test file>/<test name>.txt`; `pytest --update-golden` rewrites it.
    """
    name = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")
    path = GOLDEN / request.path.stem / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        recording = Recording()
        recording.path = path
        return recording
    if not path.exists():
        pytest.fail(f"expected a golden file at {path}; make it with `pytest --update-golden`")
    return path.read_text(encoding="utf-8")

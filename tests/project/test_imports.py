"""Imports point one way, heavy packages stay where they belong, and the first import is cheap."""

import resource
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.tree import ROOMS, ROOT, files, imports, module_name, modules

UNSTABLE_NAMES = Path("hlo/mlir/versions.py")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_earlier_rooms(room: str) -> None:
    later = ROOMS[ROOMS.index(room) + 1 :]
    wrong = [
        f"{file} imports {name}"
        for file in modules(room)
        for name in imports(file)
        if name.startswith("hlotune.") and name.split(".")[1] in later
    ]
    assert wrong == []


FLOORS = ("targets", "ir", "steps", "patterns", "features", "spaces", "algorithms")
"""The folders of `schedules`, in the order of imports: each imports earlier ones only."""


@pytest.mark.parametrize("floor", FLOORS)
def test_a_folder_of_schedules_imports_only_earlier_folders(floor: str) -> None:
    later = FLOORS[FLOORS.index(floor) + 1 :]
    wrong = [
        f"{file} imports {name}"
        for file in modules("schedules")
        if file.parts[1] == floor
        for name in imports(file)
        if name.startswith("hlotune.schedules.") and name.split(".")[2] in later
    ]
    assert wrong == []


def test_files_at_the_root_of_schedules_import_no_folder_of_it() -> None:
    names = [n for f in modules("schedules") if len(f.parts) == 2 for n in imports(f)]
    assert not [
        n for n in names if n.startswith("hlotune.schedules.") and n.split(".")[2] in FLOORS
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_modules_of_a_room_import_one_another_in_a_circle(room: str) -> None:
    """Imports for types alone count: who reads one module of a circle has to read them all."""
    by_name = {module_name(f): f for f in modules(room)}
    arrows = {
        name: {
            m
            for w in imports(file)
            if (m := w if w in by_name else w.rpartition(".")[0]) in by_name
        }
        - {name}
        for name, file in by_name.items()
    }
    try:
        tuple(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        pytest.fail(f"expected imports without a circle, got {' -> '.join(error.args[1])}")


def test_schedules_import_no_jax() -> None:
    assert packages_behind("schedules").isdisjoint({"jax", "jaxlib"})


def test_deploying_needs_neither_the_search_nor_its_models() -> None:
    assert packages_behind("deploy").isdisjoint({"xgboost", "torch"})
    assert not [
        m for m in reached("deploy") if m.startswith(("hlotune.search", "hlotune.costmodel"))
    ]


def test_one_module_has_all_names_of_jax_that_may_move_between_releases() -> None:
    inner = ("jaxlib", "jax.extend", "jax._src")
    touching = {
        file
        for room in ROOMS
        for file in modules(room)
        if any(name == i or name.startswith(f"{i}.") for name in imports(file) for i in inner)
    }
    assert touching == {UNSTABLE_NAMES}


def test_no_module_builds_ir_with_llvmlite() -> None:
    """`llvmlite.ir` has no bfloat; LLVM text is written directly."""
    naming = [
        file
        for file in files()
        if file.suffix == ".py" and "llvmlite" in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert naming
    assert not [file for file in naming if "llvmlite.ir" in imports(file)]


HELP = "from hlotune.cli.main import run_command; assert run_command(['--help']) == 0"


@pytest.mark.parametrize("line", ["import hlotune", HELP], ids=["import", "help"])
def test_the_first_contact_loads_nothing_heavy(line: str) -> None:
    said = python("-c", f"{line}\nimport sys; print(*sys.modules)").stdout
    loaded = set(said.splitlines()[-1].split())
    heavy = {"jax", "jaxlib", "xgboost", "torch", "numpy", "scipy", "llvmlite"}
    assert loaded.isdisjoint(heavy | {"hlotune.schedules.steps.schedule"})


@pytest.mark.parametrize(
    "arguments", [("-c", "import hlotune"), ("-m", "hlotune", "--help")], ids=["import", "help"]
)
def test_the_first_contact_takes_less_than_half_a_second(arguments: tuple[str, ...]) -> None:
    """Only processor time counts, since the machine may do something else as well."""

    def busy_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(busy_s() for _ in range(3)) < 0.5


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )


def reached(room: str) -> set[str]:
    """Modules of ours that a room imports, and those that they import, and so on."""
    by_name = {module_name(f): f for r in ROOMS for f in modules(r)}
    todo = [module_name(f) for f in modules(room)]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            wanted = imports(by_name[name])
            todo += [m for w in wanted for m in (w, w.rpartition(".")[0]) if m in by_name]
    return seen


def packages_behind(room: str) -> set[str]:
    """Top-level packages that a room imports, itself or through others."""
    by_name = {module_name(f): f for r in ROOMS for f in modules(r)}
    return {w.split(".")[0] for name in reached(room) for w in imports(by_name[name])}

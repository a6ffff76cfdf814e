"""The wheel holds exactly the importable package: nothing lost behind links, nothing leaked."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.tree import ROOMS, ROOT, files

SHIPPED = {".py", ".ll", ".jsonl", ".json", ".npz", ".typed", ".css", ".js"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_a_relative_link_to_the_top_level(room: str) -> None:
    assert str((ROOT / "hlotune" / room).readlink()) == f"../{room}"


def test_what_an_editable_installation_puts_into_the_path_holds_the_package_alone() -> None:
    assert [f for f in files() if f.parts[0] == "src"] == [Path("src/hlotune")]
    assert str((ROOT / "src" / "hlotune").readlink()) == "../hlotune"


def test_the_wheel_holds_every_file_of_the_package_as_it_is_and_no_other(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(tmp_path)) as built:
        packed = {n: built.read(n) for n in built.namelist() if ".dist-info/" not in n}
    shipped = {package_name(f): f for f in files() if f.suffix in SHIPPED}
    wanted = {name: (ROOT / file).read_bytes() for name, file in shipped.items() if name}
    assert packed.keys() == wanted.keys()
    assert [name for name in wanted if packed[name] != wanted[name]] == []


def test_the_sdist_makes_the_same_wheel(tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    with tarfile.open(sdist(tmp_path)) as packed:
        packed.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    run_backend(source, "build_wheel")
    (again,) = unpacked.glob("*.whl")
    names = []
    for made in (again, wheel(tmp_path / "of_the_tree")):
        with zipfile.ZipFile(made) as opened:
            names.append({n: opened.read(n) for n in opened.namelist() if ".dist-info/" not in n})
    assert names[0] == names[1]


def python_of(version: str) -> str | None:
    """An interpreter of a version of Python, as `.ci/environment` finds it."""
    found = subprocess.run(
        [ROOT / ".ci" / "interpreter", version], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_package_installs_on_each_python_and_is_imported_from_any_folder(
    kind: str, tmp_path: Path
) -> None:
    """Its requirements are left out: those of one environment are in `test_installing.py`."""
    package = wheel(tmp_path) if kind == "wheel" else sdist(tmp_path)
    pythons = {v: p for v in ("3.11", "3.12", "3.13") if (p := python_of(v))}
    assert pythons
    for version, python in pythons.items():
        folder, elsewhere = tmp_path / version, tmp_path / f"elsewhere-{version}"
        elsewhere.mkdir()
        subprocess.run([python, "-m", "venv", folder], check=True)
        own = str(folder / "bin" / "python")
        install = [own, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "setuptools>=77"], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", str(package)], check=True)
        code = (
            "import hlotune, hlotune.schedules.targets.kinds as kinds, pathlib;"
            "root = pathlib.Path(hlotune.__file__).parent;"
            "print(hlotune.__version__, len(kinds.NAMED), (root / 'costmodel/trees.npz').exists())"
        )
        done = subprocess.run(
            [own, "-c", code], cwd=elsewhere, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[1:] == ["5", "True"], version


def wheel(folder: Path) -> Path:
    """Built from a copy: setuptools leaves build/ behind, and would pack what is stale in it."""
    return made_of_a_copy(folder, "build_wheel", "*.whl")


def sdist(folder: Path) -> Path:
    return made_of_a_copy(folder, "build_sdist", "*.tar.gz")


def made_of_a_copy(folder: Path, how: str, pattern: str) -> Path:
    source = folder / "source"
    for file in files():
        copy = source / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, copy, follow_symlinks=False)
    run_backend(source, how)
    (built,) = folder.glob(pattern)
    return built


def run_backend(source: Path, how: str) -> None:
    """Calls setuptools in a source tree; what it makes stands beside the tree."""
    build = f"from setuptools import build_meta; build_meta.{how}('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)


def package_name(file: Path) -> str | None:
    """Where a file of the tree stands in the package; None where it does not."""
    if file.parts[0] == "hlotune":
        return str(file)
    return f"hlotune/{file}" if file.parts[0] in ROOMS else None

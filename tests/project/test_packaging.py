"""The wheel holds exactly the importable package: nothing lost behind links, nothing leaked."""

import shutil
import subprocess
import sys
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


def wheel(folder: Path) -> Path:
    """Built from a copy: setuptools leaves build/ behind, and would pack what is stale in it."""
    source = folder / "source"
    for file in files():
        copy = source / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, copy, follow_symlinks=False)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def package_name(file: Path) -> str | None:
    """Where a file of the tree stands in the package; None where it does not."""
    if file.parts[0] == "hlotune":
        return str(file)
    return f"hlotune/{file}" if file.parts[0] in ROOMS else None

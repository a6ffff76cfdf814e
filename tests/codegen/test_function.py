"""What is committed names no machine and no registry."""

import re

import pytest

from tests.support.tree import ROOT, files

REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|pytorch\.org/whl|deb\.debian\.org|--(extra-)?index-url"
)
MACHINE = re.compile(r"(^|[^\w./-])/(work|farm|root|home|tmp/\w+|opt/\w+)/")


@pytest.mark.parametrize("pattern", [REGISTRY, MACHINE], ids=["registry", "machine"])
def test_no_file_names_a_place_outside_the_repository(pattern: re.Pattern[str]) -> None:
    found = [
        f"{file}:{number}: {line.strip()}"
        for file in files()
        for number, line in enumerate(text(str(file)).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE.search("see " + "/work" + "/main/x.py")
    assert MACHINE.search("'" + "/home" + "/someone/x'")
    assert REGISTRY.search("https://" + "pypi" + ".org/simple")


def text(name: str) -> str:
    path = ROOT / name
    if path.is_symlink():
        return str(path.readlink())
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""

"""The public face: `import hlotune`, and `python -m hlotune`."""

import re
import subprocess
import sys

import pytest

import hlotune
from tests.support.tree import ROOT


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert hlotune.__all__ == sorted(hlotune.__all__)
    for name in hlotune.__all__:
        assert callable(getattr(hlotune, name)), name
    assert set(hlotune.__all__) <= set(dir(hlotune))


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'tuen'.*'tune'"):
        hlotune.tuen  # noqa: B018 - the access is the test


def test_every_error_is_a_hlotune_error() -> None:
    from hlotune.schedules import errors

    assert hlotune.HlotuneError is errors.HlotuneError
    named = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert all(issubclass(e, hlotune.HlotuneError) for e in named)


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", "targets"], cwd=ROOT, capture_output=True, check=True
    )
    assert b"fingerprint" in done.stdout


def test_the_readme_names_what_the_face_has() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"hlotune\.(\w+)\(", text))
    assert used and used <= set(hlotune.__all__)


def test_the_readme_explains_every_variable_that_code_reads() -> None:
    from tests.support.tree import ROOMS, modules

    read = {
        name
        for room in ROOMS
        for file in modules(room)
        for name in re.findall(
            r"environ[^\n]*\"(HLOTUNE_\w+)\"", (ROOT / file).read_text(encoding="utf-8")
        )
    }
    table = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {"HLOTUNE_DB", "HLOTUNE_DEBUG"} <= read
    assert all(f"`{name}`" in table for name in read)

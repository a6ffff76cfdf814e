"""What belongs to one backend, or to one kind of target, is named where it lives alone."""

from pathlib import Path

import pytest

from tests.support.tree import ROOMS, imports, modules, whole_texts

KINDS_OF_TARGET = ("cpu", "gpu", "tpu")
BACKENDS = ("llvm", "pallas")
"""Their folders in `codegen`."""
OF_BACKENDS = ("llvmlite", *(f"hlotune.codegen.{b}" for b in BACKENDS))


def outside(*places: str) -> list[Path]:
    """The modules of all rooms but those in these folders."""
    found = [file for room in ROOMS for file in modules(room)]
    return [f for f in found if not f.as_posix().startswith(places)]


def test_the_rules_look_at_something() -> None:
    assert len(outside("codegen/")) > 200


@pytest.mark.parametrize("backend", OF_BACKENDS)
def test_nothing_outside_of_codegen_imports_a_backend(backend: str) -> None:
    """A room that wants a backend asks `codegen/backends.py` by the kind of target."""
    assert [
        f"{file} imports {name}"
        for file in outside("codegen/")
        for name in imports(file)
        if name == backend or name.startswith(f"{backend}.")
    ] == []


@pytest.mark.parametrize("kind", KINDS_OF_TARGET)
def test_kinds_of_target_are_spelled_out_with_the_targets_alone(kind: str) -> None:
    """Parts of longer texts are no names; the backend of GPUs knows what JAX calls them."""
    assert [
        f"{file}:{line}"
        for file in outside("schedules/targets/", "cli/", "codegen/pallas/")
        for line, text in whole_texts(file)
        if text == kind
    ] == []

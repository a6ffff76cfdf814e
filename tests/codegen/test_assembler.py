"""What ptxas says of kernels: read from its text, and asked where it is."""

import sys
from pathlib import Path

import pytest

from hlotune.codegen.pallas import assembler
from hlotune.codegen.pallas.assembler import RegisterUse, register_use, said_of
from hlotune.schedules.errors import BuildError
from hlotune.schedules.targets.gpu import gpu_target

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fusion' for 'sm_80'
ptxas info    : Function properties for fusion
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'triton_product' for 'sm_80'
ptxas info    : Function properties for triton_product
    160 bytes stack frame, 196 bytes spill stores, 220 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 376 bytes cmem[0]
"""
USES = RegisterUse("fusion", 40, 0), RegisterUse("triton_product", 255, 196)


def test_registers_and_spills_of_each_kernel_are_read() -> None:
    assert tuple(said_of(SAID)) == USES
    assert tuple(said_of("")) == ()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_all_texts_of_a_folder_are_assembled_for_the_target(tmp_path: Path) -> None:
    for name in ("a.ptx", "b.ptx", "c.txt"):
        (tmp_path / name).write_text(SAID)
    ptxas = script(tmp_path / "ptxas", 'echo "$@" >> "$0".asked; cat "${@: -1}" >&2')
    assert register_use(tmp_path, gpu_target("cuda:a100"), ptxas) == USES + USES
    asked = (tmp_path / "ptxas.asked").read_text().splitlines()
    assert [line.split()[:2] for line in asked] == [["-v", "-arch=sm_80"]] * 2
    register_use(tmp_path, gpu_target("cuda:h100"), ptxas)
    assert "-arch=sm_90a" in (tmp_path / "ptxas.asked").read_text()


def test_text_that_the_assembler_refuses_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a.ptx").write_text("nonsense")
    ptxas = script(tmp_path / "ptxas", "echo 'fatal: parsing error' >&2; exit 255")
    with pytest.raises(BuildError, match=r"expected PTX that ptxas takes for cuda:a100, got fatal"):
        register_use(tmp_path, gpu_target("cuda:a100"), ptxas)


def test_the_assembler_of_a_package_is_taken_before_that_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert assembler.assembler() is None
    own = script(tmp_path / "ptxas", "exit 0")
    assert assembler.assembler() == own
    packaged = tmp_path / "nvidia" / "cu13" / "bin" / "ptxas"
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    assert assembler.assembler() == packaged

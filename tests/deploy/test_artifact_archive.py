"""A tuned program's file whose archive is damaged is one clear error, and takes no memory."""

import copy
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.deploy.freeze import freeze
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError, TargetError
from tests.deploy.test_artifact import PACKED, X, tuned
from tests.support.applied import normal
from tests.support.damaged_artifacts import (
    changed,
    with_directory,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of one layer, its weights packed."""
    folder = tmp_path_factory.mktemp("artifact")
    program = load(freeze(lambda w, x: {"y": jax.nn.relu(x @ w)}, normal(16, 32)), X)
    save_artifact(tuned(program, folder, PACKED), folder / "layer.hlotune")
    return folder / "layer.hlotune"


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members_are_refused_before_they_take_memory(
    file: Path, tmp_path: Path, method: int
) -> None:
    path = changed(file, tmp_path, lambda m: m.update(packed=bytes(64 << 20)), method)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ProgramError, match=r"stored as they are, got manifest.json compressed"):
        load_with_little_memory(path)


def test_members_in_the_same_place_are_refused_before_they_take_memory(
    file: Path, tmp_path: Path
) -> None:
    def change(members: list[zipfile.ZipInfo]) -> None:
        for n in range(1000):
            members.append(again := copy.copy(members[-1]))
            again.filename = f"again/{n}"

    path = with_directory(file, tmp_path, change)
    with pytest.raises(ProgramError, match=r"to fit into its \d+ bytes, got sizes of \d+ bytes"):
        load_with_little_memory(path)


def load_with_little_memory(path: Path) -> None:
    """Loads a file, and asserts that this took less than 4 MiB whether it succeeds or not."""
    tracemalloc.start()
    try:
        load_artifact(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20


def with_sizes(members: list[zipfile.ZipInfo]) -> None:
    members[1].file_size = members[1].compress_size = 1 << 40


def with_half(members: list[zipfile.ZipInfo]) -> None:
    members[1].compress_size //= 2


def with_flag(members: list[zipfile.ZipInfo]) -> None:
    members[1].flag_bits |= 1


def with_place(members: list[zipfile.ZipInfo]) -> None:
    members[1].header_offset += 1


def with_sum(members: list[zipfile.ZipInfo]) -> None:
    members[1].CRC ^= 1


def with_less(members: list[zipfile.ZipInfo]) -> None:
    members[1].file_size -= 1
    members[1].compress_size -= 1


def with_name(members: list[zipfile.ZipInfo]) -> None:
    members[1].filename = "program\xa0\u202e.mlirbc"


def twice(members: list[zipfile.ZipInfo]) -> None:
    members.append(copy.copy(members[1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_sizes, r"to fit into its \d+ bytes, got sizes of \d{13} bytes together"),
        (with_half, "got program.mlirbc compressed or encrypted"),
        (with_flag, "got program.mlirbc compressed or encrypted"),
        (with_name, r"as `tune apply` names them, got program\\xa0\\u202e\.mlirbc; write"),
        (twice, "expected each member of .* once, got program.mlirbc twice"),
        (with_place, "got program.mlirbc damaged"),
        (with_sum, "got program.mlirbc damaged"),
        (with_less, "got program.mlirbc damaged"),
    ],
)
def test_a_directory_that_contradicts_the_file_is_refused(
    file: Path,
    tmp_path: Path,
    change: Callable[[list[zipfile.ZipInfo]], object],
    message: str,
) -> None:
    with pytest.raises(ProgramError, match=message):
        load_artifact(with_directory(file, tmp_path, change))


def test_a_file_cut_anywhere_is_one_clear_error(file: Path, tmp_path: Path) -> None:
    data, path = file.read_bytes(), tmp_path / "cut.hlotune"
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ProgramError, match=r"^expected [^\n]*$"):
            load_artifact(path)


def test_a_changed_byte_anywhere_is_an_error_of_ours_or_changes_nothing(
    file: Path, tmp_path: Path
) -> None:
    data, path = file.read_bytes(), tmp_path / "flipped.hlotune"
    for place in range(0, len(data), 41):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            assert load_artifact(path).name
        except (ProgramError, TargetError) as error:
            assert str(error).startswith("expected ")


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="got No such file or directory; check the path"):
        load_artifact(tmp_path / "none.hlotune")
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(ProgramError, match="which is none or is cut short"):
        load_artifact(tmp_path / "notes.txt")

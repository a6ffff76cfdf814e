"""Boosters out of files are checked before xgboost reads them."""

import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xgboost

from hlotune.costmodel import files, pretrained
from hlotune.costmodel.boosters import checked_booster
from hlotune.costmodel.files import Damaged
from hlotune.costmodel.ubjson import decoded
from hlotune.schedules.errors import ModelError

Change = Callable[[bytes], bytes]
WIDTHS = {b"U": 1, b"l": 4, b"d": 4}


@cache
def booster() -> bytes:
    """Six trees on 118 columns, as xgboost stores them."""
    rows = np.random.default_rng(0).random((300, 118)).astype(np.float32)
    settings = {"max_depth": 4, "base_score": 0.0, "tree_method": "hist", "nthread": 1}
    grown = xgboost.train(settings, xgboost.DMatrix(rows, rows[:, 0]), 6)
    return bytes(grown.save_raw("ubj"))


def number(name: str, node: int, value: float) -> Change:
    """Writes a number of the first tree."""

    def change(stored: bytes) -> bytes:
        head = stored.index(name.encode() + b"[$") + len(name) + 2
        kind, begin = stored[head : head + 1], head + 11
        packed = struct.pack(">f", value) if kind == b"d" else int(value).to_bytes(4, "big")
        place = begin + node * WIDTHS[kind]
        return stored[:place] + packed[-WIDTHS[kind] :] + stored[place + WIDTHS[kind] :]

    return change


def key(name: str) -> bytes:
    return b"L" + struct.pack(">q", len(name)) + name.encode()


def text(before: str, after: str) -> Change:
    """Replaces the first of a text, which may be shorter, and its length."""

    return lambda stored: stored.replace(key(before), key(after), 1)


VERSION = b"[$U#L" + struct.pack(">q", 3) + b"\3\2\0"

DAMAGES: dict[str, tuple[Change, str]] = {
    "a child beyond": (number("left_children", 0, 5000), "a child that is none of its nodes, or"),
    "a negative child": (number("left_children", 0, 0x80000000), "a child that is none of its"),
    "two parents": (number("right_children", 0, 1), "a child that is none of its nodes, or of two"),
    "a circle": (number("left_children", 1, 0), "a child that is none of its nodes, or of two"),
    "another parent": (number("parents", 1, 2), "a node of another parent in tree 0"),
    "a feature beyond": (number("split_indices", 0, 118), "a test of a feature beyond 118 in tree"),
    "a feature before": (number("split_indices", 0, 0xFFFFFFFF), "a test of a feature beyond 118"),
    "no number": (number("split_conditions", 0, np.nan), "a value that is no finite number"),
    "a category": (number("split_type", 0, 1), "categories in tree 0"),
    "cut off": (lambda s: s[:-20], "a booster that ends . bytes too early|without a length"),
    "more": (lambda s: s + b"}", "1 bytes after the end of a booster"),
    "a key lost": (text("trees", "treez"), "a booster without 'trees'"),
    "a key twice": (text("split_type", "split_indices"), "a booster with two of 'split_indices'"),
    "too few nodes": (text("parents", "id"), "a booster with two of|a booster without"),
    "an unknown marker": (lambda s: s.replace(b"[$l#", b"[$?#", 1), "with the marker '?'"),
    "an unknown list": (lambda s: s.replace(b"[#L", b"[!L", 1), "with a list without a length"),
    "another list": (lambda s: s.replace(b"[$l#", b"[$l!", 1), "'!' in the place of '#'"),
    "floats for nodes": (lambda s: s.replace(b"[$l#", b"[$d#", 9), "that are not whole|another"),
    "no object": (lambda _: b"{" + key("version") + VERSION + key("learner") + b"Z}", "NoneType"),
    "another model": (text("gbtree", "gblinear"), "a booster of no trees"),
    "another objective": (text("reg:squarederror", "reg:sorcery"), "of an unknown objective"),
    "several outputs": (text("num_class", "num_target"), "with two of 'num_target'"),
    "no bytes": (lambda s: b"", "a booster that ends 1 bytes too early"),
}  # fmt: skip


def as_array(stored: bytes) -> np.ndarray:
    return np.frombuffer(stored, np.uint8)


def test_a_booster_is_taken_as_it_was_stored() -> None:
    assert bytes(checked_booster(as_array(booster()))) == booster()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_booster_is_refused_before_xgboost_reads_it(name: str) -> None:
    change, message = DAMAGES[name]
    changed = change(booster())
    assert changed != booster()
    with pytest.raises(Damaged, match=message):
        checked_booster(as_array(changed))


def test_the_refusal_of_a_model_file_says_what_it_has(tmp_path: Path) -> None:
    source = pretrained.shipped("trees")
    assert source is not None
    header, arrays = files.read_file(source)
    stored = number("split_indices", 0, 4000)(arrays["booster"].tobytes())
    files.write(tmp_path / "m", header, {**arrays, "booster": as_array(stored)})
    with pytest.raises(
        ModelError, match=r"/m, got a test of a feature beyond \d+ in tree 0; `tune"
    ):
        pretrained.start("trees", tmp_path / "m")


def test_numbers_of_every_width_are_read() -> None:
    lists = {"U": b"\1\xff", "I": b"\1\0\xff\xff", "d": struct.pack(">2f", 1, 2)}
    two = b"#L" + struct.pack(">q", 2)
    stored = b"".join(key(k) + b"[$" + k.encode() + two + v for k, v in lists.items())
    read = decoded(b"{" + stored + key("one") + b"i\xff" + key("is") + b"T}")
    assert isinstance(read, dict)
    assert {k: np.asarray(v).tolist() for k, v in read.items()} == {
        "U": [1, 255], "I": [256, -1], "d": [1.0, 2.0], "one": -1, "is": True,
    }  # fmt: skip


def test_a_member_is_held_against_its_checksum(tmp_path: Path) -> None:
    path, weights = tmp_path / "m", np.arange(4096, dtype=np.float32)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive,
        archive.open("weights.npy", "w") as member,
    ):
        np.lib.format.write_array(member, weights)
    whole = path.read_bytes()
    assert files.read_arrays(path) is not None
    place = whole.index(weights[4000:4004].tobytes())
    path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    assert files.read_arrays(path) is None


def test_a_file_of_more_than_a_model_has_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(tmp_path / "m", files.Header("trees", "1-x"), {"zeros": np.zeros(1 << 21)})
    monkeypatch.setattr(files, "LARGEST_BYTES", 1 << 24)
    with pytest.raises(ModelError, match="got arrays of more than 16 MB; `tune model train`"):
        files.read_file(tmp_path / "m")


def test_a_header_of_an_array_that_is_no_python_is_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "m"
    files.write(path, files.Header("trees", "1-x"), {"zeros": np.zeros(8)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b"'shape'", b"'sha\0e'"))
    with pytest.raises(ModelError, match="got one that is damaged or of another kind"):
        files.read_file(path)

"""Variants of a program for several sizes, in one file, called by the shapes of arguments."""

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.deploy.apply import TunedFunction, apply
from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.deploy.test_artifact import PACKED
from tests.support.applied import final, first_sites, mlp, normal, recorded

WEIGHTS = {"in": normal(16, 32), "bias": normal(32), "out": normal(32, 10)}


def frozen(x: Any) -> Any:
    return mlp(jax.tree.map(jax.numpy.asarray, WEIGHTS), x)


def variants(folder: Path) -> list[TunedFunction]:
    """For 4 and for 8 rows, the same weights packed in both."""
    programs = [load(frozen, normal(rows, 16)) for rows in (4, 8)]
    records = {first_sites(p)["dot0"]: final(PACKED) for p in programs}
    database = recorded(folder / "a.db", records)
    return [apply(p, database=database) for p in programs]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants")
    tuned = variants(folder)
    assert all(t.replacements for t in tuned)
    save_artifact(tuned, folder / "mlp.hlotune")
    return folder / "mlp.hlotune"


def test_a_file_of_variants_calls_the_one_of_the_shapes_that_it_is_given(file: Path) -> None:
    run = load_artifact(file)
    for rows in (8, 4):
        x = normal(rows, 16)
        np.testing.assert_allclose(run(x)["logits"], frozen(x)["logits"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(run(x=x)["logits"], frozen(x)["logits"], rtol=1e-4, atol=1e-5)
    assert run.packed_bytes > 0 and len(run.kernels) == 2
    assert "tensor<8x16xf32>" in run.lower(normal(8, 16)).as_text()
    with pytest.raises(TypeError, match=r"a variant, \(4x16\) or \(8x16\), got \(5x16\); pad"):
        run(normal(5, 16))


def test_what_variants_have_in_common_is_in_the_file_once(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        (one, other) = json.loads(archive.read("manifest.json"))["variants"]
    assert one["sha256"]["packed/0"] == other["sha256"]["packed/0"]
    assert len(names) == 1 + len({*one["sha256"].values(), *other["sha256"].values()})


def test_two_variants_of_the_same_shapes_are_refused(tmp_path: Path) -> None:
    (first, _) = variants(tmp_path)
    with pytest.raises(
        ProgramError, match=r"different shapes or element types, got two for the same, \(4x16\)"
    ):
        save_artifact([first, first], tmp_path / "a.hlotune")


def test_variants_may_differ_in_element_types_alone(tmp_path: Path) -> None:
    def doubled(x: Any) -> Any:
        return x + x

    database = recorded(tmp_path / "a.db", {})
    given = [normal(4, 16), normal(4, 16).astype(np.float16), normal(8, 16)]
    tuned = [apply(load(doubled, x), database=database) for x in given]
    save_artifact(tuned, tmp_path / "a.hlotune")
    run = load_artifact(tmp_path / "a.hlotune")
    for x in given:
        assert run(x).dtype == x.dtype
        np.testing.assert_array_equal(run(x), x + x)
    expected = r"\(float32 4x16\) or \(float16 4x16\) or .*, got \(int32 4x16\); pad"
    with pytest.raises(TypeError, match=expected):
        run(np.zeros((4, 16), np.int32))


def test_no_variants_and_those_of_other_arguments_are_refused(tmp_path: Path) -> None:
    (first, _) = variants(tmp_path)
    database = tmp_path / "a.db"
    other = apply(load(lambda y: frozen(y), normal(8, 16)), database=database)
    with pytest.raises(ProgramError, match="got an empty list of them"):
        save_artifact([], tmp_path / "a.hlotune")
    with pytest.raises(ProgramError, match=r"different arguments, frozen of \(x\) and .* of \(y\)"):
        save_artifact([first, other], tmp_path / "a.hlotune")
    assert not (tmp_path / "a.hlotune").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(variants=[]), "variants in the manifest of .* a list of programs"),
        (lambda m: m.update(variants=[1]), "variants in the manifest of .* a list of programs"),
        (lambda m: m["variants"].pop(), "the file has besides contents/"),
        (lambda m: m["variants"][0].pop("key"), "expected key in the manifest of .*, got none"),
        (lambda m: m["variants"].__setitem__(0, m["variants"][1]), "has besides contents/"),
        (lambda m: m["variants"].append(m["variants"][1]), "two for the same"),
        (lambda m: m.update(hlotune_artifact=3), "of format 2 or older, .*; upgrade hlotune"),
    ],
    ids=["none", "number", "lost", "key", "wrong", "twice", "newer"],
)
def test_damage_is_one_error(file: Path, tmp_path: Path, change: Any, said: str) -> None:
    changed = tmp_path / "changed.hlotune"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            new.writestr(info, data)
    with pytest.raises(ProgramError, match=said):
        load_artifact(changed)

"""Machine code that is kept saves building it, and is used only where it is what was verified."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.deploy import apply as apply_module
from hlotune.deploy import kept_code, replacement
from hlotune.deploy.apply import apply
from hlotune.deploy.kept_code import keep, kept
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import DatabaseError
from tests.support.applied import DIRECT, PARAMETERS, code_of, final, mlp, normal, recorded

Damage = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path / "cache" / "hlotune" / "code"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The algorithms of what is built from now on, as by a process of its own each time."""
    found: list[str] = []

    def counting(compute: Any, schedule: Any, target: Any) -> Any:
        found.append(schedule.algorithm)
        return build(compute, schedule, target)

    monkeypatch.setattr(replacement, "build", counting)
    monkeypatch.setattr(apply_module, "built_here", replacement.built_here.__wrapped__)
    return found


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def foreign(path: Path) -> None:
    path.parent.chmod(0o777)


def of_other_code(path: Path) -> None:
    target, (site, *_) = host_target(), sites(load(lambda x: x @ x, normal(48, 48)))
    other = build(compute_of(graph_of(site.kernel)), DIRECT, target)
    keep(site.kernel, DIRECT, target, other)
    (made,) = (p for p in path.parent.iterdir() if p != path)
    made.replace(path)


@pytest.mark.parametrize("damage", [cut, foreign, of_other_code, Path.unlink])
def test_a_kernel_is_built_once_and_again_where_what_is_kept_cannot_be_used(
    damage: Damage, folder: Path, builds: list[str], tmp_path: Path
) -> None:
    x = normal(64, 16)
    program = load(mlp, PARAMETERS, x)
    site = sites(program)[0]
    database = recorded(tmp_path / "tuning.db", {site: final(DIRECT)})
    builds.clear()  # the record names the code that is built
    wanted = mlp(PARAMETERS, x)["logits"]
    for expected in (1, 1, 2):
        if expected == 2:
            (path,) = folder.iterdir()
            damage(path)
        tuned = apply(program, database=database)
        assert [r.site for r in tuned.replacements] == [site]
        np.testing.assert_allclose(tuned(PARAMETERS, x)["logits"], wanted, rtol=1e-4, atol=1e-4)
        assert len(builds) == expected


def test_the_folder_is_the_user_s_alone_and_does_not_grow_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, (site, *_) = host_target(), sites(load(lambda x: x @ x, normal(48, 48)))
    built = replacement.built_here(site.kernel, DIRECT, target)
    folder.mkdir(parents=True, mode=0o700)
    for n in range(5):
        (folder / f"old{n}").write_bytes(b"")
        os.utime(folder / f"old{n}", (n, n))
    monkeypatch.setattr(kept_code, "MOST_FILES", 3)
    keep(site.kernel, DIRECT, target, built)
    assert len({*folder.iterdir()}) == 3 and not (folder / "old2").exists()
    assert kept(site.kernel, DIRECT, target, built.key) == built
    assert kept(site.kernel, DIRECT, target, "another") is None
    assert kept(site.kernel, DIRECT, target, None) is None


def test_without_a_home_nothing_is_kept_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless() -> Path:
        raise DatabaseError("expected a home folder")

    monkeypatch.setattr(kept_code, "cache_directory", homeless)
    target, (site, *_) = host_target(), sites(load(lambda x: x @ x, normal(48, 48)))
    code = code_of(site.kernel, DIRECT)
    keep(site.kernel, DIRECT, target, replacement.built_here(site.kernel, DIRECT, target))
    assert kept(site.kernel, DIRECT, target, code) is None


def test_a_process_that_builds_nothing_does_not_import_what_builds() -> None:
    code = "import hlotune.codegen.llvm.backend, hlotune.deploy.apply, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "hlotune.codegen.llvm.backend" in done.stdout.split()
    assert "hlotune.codegen.llvm.emit" not in done.stdout.split()

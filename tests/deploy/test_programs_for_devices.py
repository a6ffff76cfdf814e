"""Tuned programs for GPUs and TPUs, called, jitted and written to files; Pallas interprets kernels.

A kernel stands in a program only where its record says that it is faster than XLA's, so that no
program is slower for having been tuned.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import hlotune
from hlotune.deploy import jit as jitting
from hlotune.deploy.apply import apply
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import Site
from hlotune.measure.machine import devices
from hlotune.measure.machine.devices import default_target, target_with
from hlotune.schedules.errors import TargetError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.kinds import NAMED
from hlotune.schedules.targets.target import Target
from hlotune.search.tasks import tasks
from tests.support import interpreted_gpu
from tests.support.applied import final, first_sites, normal, recorded
from tests.support.interpreted_gpu import INTERPRETED, INTERPRETED_TPU

X, W = normal(16, 128), normal(128, 128)


def dense(x: Any, w: Any) -> Any:
    return x @ w


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)


@pytest.fixture
def program() -> Program:
    return load(dense, X, W)


def first_candidate(program: Program, target: Target) -> tuple[Site, Schedule]:
    site = first_sites(program)["dot0"]
    ((task,), _) = tasks([site], target)
    return site, task.space.schedule(task.space.heuristic())


def become_first(target: Target, patch: pytest.MonkeyPatch) -> None:
    """Makes a target the one of JAX's first device."""
    for module in (devices, jitting):
        patch.setattr(module, "default_target", lambda: target)


@pytest.mark.parametrize("target", [INTERPRETED, INTERPRETED_TPU], ids=lambda t: t.name)
def test_a_kernel_that_is_faster_stands_in_functions_and_files(
    target: Target, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, schedule = first_candidate(program, target)
    path = recorded(tmp_path / "a.db", {site: final(schedule)}, target=target)
    become_first(target, monkeypatch)

    fast = hlotune.jit(dense, database=path)
    right = jax.jit(dense)(X, W)
    np.testing.assert_allclose(fast(X, W), right, rtol=1e-5, atol=1e-5)
    assert [e.status for e in fast.explain(X, W) if e.site.name == "dot0"] == ["tuned"]

    tuned = apply(program, database=path, target=target)
    hlotune.save_artifact(tuned, tmp_path / "dense.hlotune")
    loaded = hlotune.load_artifact(tmp_path / "dense.hlotune")
    np.testing.assert_array_equal(loaded(X, W), tuned(X, W))
    assert (loaded.target, loaded.kernels) == (target.fingerprint, ())


def test_a_kernel_that_is_no_faster_is_left_to_the_default_everywhere(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, schedule = first_candidate(program, INTERPRETED)
    slower = replace(final(schedule, 1e-5, 1.1e-5), outcome="kept default")
    path = recorded(tmp_path / "a.db", {site: slower}, target=INTERPRETED)
    become_first(INTERPRETED, monkeypatch)

    tuned = apply(program, database=path, target=INTERPRETED)
    (status,) = {e.status for e in tuned.explain() if e.site.name == "dot0"}
    assert (tuned.replacements, status) == ((), "kept default")
    fast = hlotune.jit(dense, database=path)
    assert fast._tuned(fast._split((X, W), {})) is None
    np.testing.assert_array_equal(fast(X, W), jax.jit(dense)(X, W))


def test_a_file_for_another_device_is_refused(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, schedule = first_candidate(program, INTERPRETED)
    path = recorded(tmp_path / "a.db", {site: final(schedule)}, target=INTERPRETED)
    tuned = apply(program, database=path, target=INTERPRETED)
    hlotune.save_artifact(tuned, tmp_path / "dense.hlotune")
    with pytest.raises(TargetError, match="expected a target of this machine"):
        hlotune.load_artifact(tmp_path / "dense.hlotune")


def test_the_first_device_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for played in (INTERPRETED, INTERPRETED_TPU):  # which take any device for theirs
        monkeypatch.delitem(NAMED, played.name)

    def first(platform: str, kind: str) -> None:
        device = SimpleNamespace(platform=platform, device_kind=kind)
        monkeypatch.setattr(jax, "devices", lambda *_: [device])

    first("gpu", "NVIDIA H200")
    assert default_target() == gpu_target("cuda:h200")
    assert target_with(gpu_target("cuda:h200").fingerprint).name == "cuda:h200"
    first("gpu", "Radeon")
    with pytest.raises(TargetError, match="expected JAX's first device to be a CPU or one of cuda"):
        default_target()

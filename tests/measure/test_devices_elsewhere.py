"""TPUs, which one process has to itself: this one looks for them without opening any."""

from pathlib import Path

import jax
import numpy as np
import pytest

from hlotune.cli.devices import leave_device
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine import devices
from hlotune.measure.machine.devices import device_names, names_elsewhere, target_here
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import tpu_target
from hlotune.search import first, tune

V5E = tpu_target("tpu:v5e")


def refused(*_: object) -> None:
    raise AssertionError("expected this process to open no device")


def test_a_tpu_is_found_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "names_elsewhere", lambda platform: V5E.devices[:1])
    monkeypatch.setattr(jax, "devices", refused)
    assert target_here(V5E) == V5E


def test_a_tpu_that_this_process_has_already_is_found_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "names_elsewhere", lambda platform: ())
    assert device_names("tpu") == ()
    monkeypatch.setattr(jax, "devices", lambda platform: [jax.local_devices()[0]])
    assert device_names("tpu") == (jax.local_devices()[0].device_kind,)


def test_another_process_names_what_jax_finds_there_or_nothing() -> None:
    assert set(names_elsewhere("cpu")) == set(device_names("cpu"))
    assert names_elsewhere("nonsense") == ()


def test_a_process_that_lets_a_worker_measure_leaves_it_a_tpu_but_not_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = list[str]()
    monkeypatch.setattr(jax.config, "update", lambda name, value: left.append(f"{name}={value}"))
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # is put back behind the test
    leave_device(gpu_target("cuda:h200"))
    assert left == []
    leave_device(V5E)
    assert left == ["jax_platforms=cpu"]


@pytest.mark.parametrize("search", [tune.tune, first.first], ids=["tune", "first"])
def test_no_search_needs_a_tpu_in_two_processes(
    search: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(target: Target | None) -> Target | None:
        return target

    monkeypatch.setattr(tune, "target_here", found)
    monkeypatch.setattr(first, "target_here", found)
    assert callable(search)
    with pytest.raises(
        TargetError, match=r"two processes may use, got .*: search there by `tune e"
    ):
        search(load(jax.numpy.sin, np.zeros(4)), target=V5E, database=tmp_path / "a.db")

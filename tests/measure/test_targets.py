"""Targets: this machine and the named ones."""

import os
import sys
import time
from dataclasses import replace

import pytest

from hlotune.codegen.llvm.compile import compile_object
from hlotune.measure.machine import targets
from hlotune.measure.machine.targets import TARGETS, host_target, require_host, toolchain
from hlotune.measure.timing.peaks import compute_text, host_properties, multiply_add_loop, read_text
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.soon import soon


def test_the_host_is_found_quickly_and_is_the_same_each_time() -> None:
    found = list[CpuTarget]()

    def quickly() -> bool:
        targets._host.cache_clear()
        start = time.perf_counter()
        found.append(host_target())
        return time.perf_counter() - start < 0.05

    assert soon(quickly)
    first, *again = (*found, host_target())
    assert all(target == first for target in again)
    assert first.kind == "cpu"
    assert first.features
    assert 0 < first.l1_bytes <= first.l2_bytes <= first.l3_bytes


def test_threads_default_to_the_processors_of_the_process() -> None:
    assert host_target().threads == len(os.sched_getaffinity(0))
    assert host_target(1).threads == 1
    assert host_target(1).fingerprint != host_target(2).fingerprint or host_target().threads == 1


def test_more_threads_than_processors_are_refused() -> None:
    with pytest.raises(TargetError, match=r"expected 1 to \d+ threads.*got 4096; ask for fewer"):
        host_target(4096)


def test_systems_other_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(TargetError, match=r"expected Linux, got darwin: .* run hlotune there"):
        host_target()


def test_two_kinds_of_core_under_one_name_of_the_vendor_are_told_apart() -> None:
    older, newer = (replace(TARGETS["znver4"], name="EPYC", isa=x) for x in ("znver4", "znver5"))
    assert (older.title, newer.title) == ("EPYC (znver4)", "EPYC (znver5)")
    assert TARGETS["znver4"].title == "znver4"


def test_the_host_is_known_by_its_fingerprint() -> None:
    target = host_target(1)
    assert require_host(target.fingerprint) == target


def test_a_named_target_is_not_this_machine() -> None:
    with pytest.raises(TargetError, match=r"got znver4, fingerprint [0-9a-f]{16}; measure on"):
        require_host(TARGETS["znver4"].fingerprint)


def test_named_targets_differ_in_their_vectors() -> None:
    assert {name: t.vector_bytes for name, t in TARGETS.items()} == {
        "x86-64": 16,
        "x86-64-v3": 32,
        "znver4": 64,
        "sapphirerapids": 64,
        "aarch64": 16,
    }


def test_a_core_that_takes_vectors_in_halves_begins_one_multiply_add_a_cycle() -> None:
    halves, whole = TARGETS["znver4"], replace(TARGETS["znver4"], isa="znver5")
    assert (halves.multiply_adds, halves.chains) == (1, 4)
    assert (whole.multiply_adds, whole.chains) == (2, 8)
    shorter = replace(halves, features=TARGETS["x86-64-v3"].features)
    assert shorter.multiply_adds == 2


def test_the_toolchain_names_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_onednn=false")
    found = toolchain()
    assert found.jaxlib[0].isdigit()
    assert found.llvm.count(".") == 2
    assert found.xla_flags == "--xla_cpu_use_onednn=false"


@pytest.mark.parametrize("name", TARGETS)
def test_the_kernels_of_the_peaks_compile_for_every_target(name: str) -> None:
    target = TARGETS[name]
    for dtype in ("f32", "f64"):
        assert compile_object(compute_text(multiply_add_loop(dtype, target), 10, 2), target)
    assert compile_object(read_text(4096, 2, target.vector_bytes), target)


def test_properties_are_those_of_a_machine_of_our_time() -> None:
    found = host_properties(host_target())
    assert 1e8 < found.clock_hz < 1e10
    assert 1e9 < found.read_bytes_per_s < 1e13
    assert all(1e9 < peak < 1e15 for peak in found.flops_per_s.values())
    assert {"f32", "f64"} <= found.flops_per_s.keys()
    assert found is host_properties(host_target())


def test_properties_of_another_machine_cannot_be_measured() -> None:
    with pytest.raises(TargetError, match="expected a target of this machine"):
        host_properties(TARGETS["aarch64"])

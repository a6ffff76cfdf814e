"""Kinds of target: what they share, what records keep of them, and devices by name."""

import json
from dataclasses import replace

import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.kinds import KINDS, NAMED, SCHEMA, named_target, stored, target_of
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import TPU_TARGETS, tile_rows, tpu_target

ALL: tuple[Target, ...] = (*TARGETS.values(), *NAMED.values())

FINGERPRINTS = {
    "x86-64": "c7b48b946bc8ecb2",
    "x86-64-v3": "c3789a4adfd13548",
    "znver4": "ecb22f0813b46c66",
    "sapphirerapids": "70b73cbfb28d1105",
    "aarch64": "cbf95c4a4993bf9f",
}
"""The fingerprints of the named CPUs before kinds of target had classes of their own."""


def test_fingerprints_of_cpus_are_those_of_earlier_records() -> None:
    assert {name: t.fingerprint for name, t in TARGETS.items()} == FINGERPRINTS


@pytest.mark.parametrize("target", ALL, ids=lambda t: t.name)
def test_a_stored_target_is_read_back_as_it_was(target: Target) -> None:
    read = target_of(json.loads(json.dumps(stored(target))))
    assert read == target
    assert read.fingerprint == target.fingerprint


def test_targets_stored_without_a_schema_are_of_the_first_one() -> None:
    target = TARGETS["znver4"]
    first = {k: v for k, v in stored(target).items() if k != "schema"}
    assert target_of(first) == target


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, "2", None])
def test_targets_of_a_newer_schema_are_refused(schema: object) -> None:
    data = {**stored(TARGETS["znver4"]), "schema": schema}
    with pytest.raises(TypeError, match=f"expected a target of schema 1 to {SCHEMA}, got schema"):
        target_of(data)


def test_a_kind_that_is_unknown_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a target of kind cpu, gpu, tpu, got 'abacus'"):
        target_of({**stored(TARGETS["znver4"]), "kind": "abacus"})


@pytest.mark.parametrize("name", ["cuda:b17", "tpu:v1"])
def test_a_stored_device_that_this_version_does_not_know_is_refused(name: str) -> None:
    target = NAMED[{"cuda": "cuda:h100", "tpu": "tpu:v5e"}[name.partition(":")[0]]]
    with pytest.raises(TypeError, match=name):
        target_of({**stored(target), "name": name})


def test_each_kind_names_itself() -> None:
    assert {name: {t.kind for t in ALL if isinstance(t, kind)} for name, kind in KINDS.items()} == {
        name: {name} for name in KINDS
    }


def test_fingerprints_tell_all_targets_apart() -> None:
    assert len({t.fingerprint for t in ALL}) == len(ALL)


def test_measured_rates_are_no_part_of_a_fingerprint() -> None:
    h100 = named_target("cuda:h100")
    assert replace(h100, flops_per_s={}).fingerprint == h100.fingerprint  # type: ignore[call-arg]
    assert replace(h100, multiprocessors=114).fingerprint != h100.fingerprint  # type: ignore[call-arg]


def test_a_device_of_no_known_name_is_one_clear_error() -> None:
    with pytest.raises(TargetError, match=r"expected a target of cuda:a100, .*tpu:v6e, got 'moon'"):
        named_target("moon")
    with pytest.raises(TargetError, match="no TPU is called 'tpu:v9': expected one of tpu:v5e"):
        tpu_target("tpu:v9")


def test_blocks_of_a_tpu_are_whole_tiles_of_its_memory() -> None:
    v5e = TPU_TARGETS["tpu:v5e"]
    assert [tile_rows(n) for n in (4, 2, 1)] == [8, 16, 32]
    assert v5e.takes_block(8, 128, 4)
    assert not v5e.takes_block(8, 128, 2)
    assert not v5e.takes_block(8, 64, 4)


def test_targets_can_be_keys() -> None:
    assert len({*ALL}) == len(ALL)

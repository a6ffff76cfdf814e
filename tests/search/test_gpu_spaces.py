"""Guesses at times on GPUs, corrected by the trees that come with the package."""

from typing import Any

import numpy as np
import pytest

from hlotune.costmodel.gpu_guesses import SHIPPED, shipped
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import ModelError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.gpu import GpuProduct
from hlotune.schedules.spaces.gpu.features import features
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.kinds import named_target
from hlotune.search.learning import gpu_spaces
from hlotune.search.learning.gpu_spaces import corrected, guessed_space
from tests.support.gpu_programs import PROGRAMS, f32

PRODUCT = GpuProduct(4096, 4096, 4096, "bf16")
H200 = gpu_target("cuda:h200")


def compute(function: Any, *arguments: Any) -> Compute:
    return compute_of(graph_of(sites(load(function, *arguments))[0].kernel))


def test_the_trees_that_come_along_are_of_these_features_and_reorder_guesses() -> None:
    space = gpu_space(PRODUCT, H200)
    better = corrected(PRODUCT, space)
    factor = better.seconds(space.configs) / space.roofline(space.configs)
    assert np.isfinite(factor).all()
    assert factor.std() > 0.01
    assert not np.array_equal(better.propose(12), space.propose(12))


def test_trees_of_other_features_leave_guesses_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_spaces, "KEY", "gpu-0-none")
    space = gpu_space(PRODUCT, H200)
    assert corrected(PRODUCT, space) is space
    with pytest.raises(ModelError, match=SHIPPED.name):
        shipped("gpu-0-none")


def test_a_search_has_guesses_that_were_learned_for_kinds_that_devices_measured() -> None:
    product = compute(lambda a, b: a @ b, f32(512, 512), f32(512, 512))
    assert guessed_space(product, H200).blocks.correction is not None
    assert guessed_space(product, named_target("tpu:v5e")).blocks.correction is None
    rows = compute(PROGRAMS["softmax"][0], f32(512, 768))
    assert guessed_space(rows, H200).blocks.correction is None


def test_stages_over_rows_have_finite_features_that_tell_configs_apart() -> None:
    space = guessed_space(
        compute(PROGRAMS["layer norm"][0], f32(512, 768), f32(768), f32(768)), H200
    )
    seen = features(space.kernel, gpu_space(space.kernel, H200), space.blocks.configs)
    assert np.isfinite(seen).all()
    assert len(np.unique(seen, axis=0)) == len(seen)

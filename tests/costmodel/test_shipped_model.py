"""The trained model that comes with the package fits today's features, and knows what it should."""

import numpy as np
import pytest

from hlotune.costmodel.files import Training, header_of
from hlotune.costmodel.model import predictions
from hlotune.costmodel.pretrained import shipped, start
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.spaces.cpu_contraction.space import space_of

RESNET = "examples/resnet18.py:model"


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    """The kernels of ResNet-18, whole and in parts."""
    return list({s.kernel.key: s.kernel for s in sites(load(RESNET))}.values())


@pytest.fixture(scope="module")
def training() -> Training:
    path = shipped("trees")
    assert path is not None
    seen = header_of(path).training
    assert seen is not None
    return seen


def test_a_run_starts_from_it(training: Training) -> None:
    """Where features have changed: `make model`."""
    begun = start("trees")
    assert begun.model.knows
    assert begun.words == (
        f"trees, trained on {training.trials} trials of {len(training.kernels)} kernels"
    )


@pytest.mark.torch
def test_a_run_on_loop_trees_starts_from_a_network_taught_by_the_same_trials(
    training: Training,
) -> None:
    path, begun = shipped("treegru"), start("treegru")
    assert path is not None and path.stat().st_size < 1 << 20
    assert begun.model.knows
    assert header_of(path).training == training


def test_it_was_trained_on_many_kernels_and_families(training: Training) -> None:
    assert training.trials > 9_000
    assert len(training.kernels) >= 60
    assert len(training.families) >= 12


def test_it_is_small() -> None:
    path = shipped("trees")
    assert path is not None and path.stat().st_size < 4 << 20


def test_it_has_seen_no_kernel_of_resnet(training: Training, kernels: list[Kernel]) -> None:
    assert not {k.key for k in kernels} & set(training.kernels)


def test_it_likes_the_heuristic_of_unseen_kernels_better_than_most_schedules(
    kernels: list[Kernel],
) -> None:
    model, places = start("trees").model, []
    for kernel in kernels[:6]:
        space = space_of(compute_of(graph_of(kernel)), TARGETS["znver4"])
        drawn = space.sample(200, np.random.default_rng(0))
        first = predictions(model, space, space.heuristic()[None, :])[0]
        places.append(float(np.mean(predictions(model, space, drawn) < first)))
    assert np.median(places) > 0.9, places

"""The TreeGRU computes what its equations say; networks learn, stop in time, and are repeatable."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hlotune.costmodel import metrics, neural
from hlotune.costmodel.adam import DECAY, Adam
from hlotune.costmodel.inputs import Features, Inputs
from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.mlp import mlp
from hlotune.costmodel.neural import SCHOOLING, minibatches, rank_loss
from hlotune.costmodel.treegru import HIDDEN, TreeGru, depths, levels_of, tree_gru
from hlotune.schedules.features.loop_trees import ABSENT, NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import NAMES

pytestmark = pytest.mark.torch
Scores = NDArray[np.float32]
PARENTS = [
    [ROOT_PARENT, 0, 1, 1, 3],
    [ROOT_PARENT, 0, ABSENT, 0, ABSENT],
    [ROOT_PARENT, ABSENT, ABSENT, ABSENT, ABSENT],
]
"""A tree with a fork, a root with two leaves, a root alone."""


def trees(n: int, seed: int = 0) -> Nodes:
    """Trees of the three shapes in turn."""
    rng = np.random.default_rng(seed)
    parent = np.array([PARENTS[k % 3] for k in range(n)], np.int16)
    values = rng.standard_normal((*parent.shape, len(NODE_NAMES))).astype(np.float32)
    values[:, :, 4:] = 0  # little to be misled by, for the tests that learn
    values[parent == ABSENT] = 0
    return Nodes(values, parent)


def known(n: int, seed: int = 0) -> tuple[Nodes, NDArray[np.float32], NDArray[np.int32]]:
    """Scores that hang on sums over the nodes, and on the root; of three kernels."""
    of = trees(n, seed)
    effect = of.values[:, :, 0].sum(axis=1) - 2 * of.values[:, 0, 1]
    score = np.exp2(effect - effect.max()).astype(np.float32)
    return of, score, (np.arange(n) // 3 % 3).astype(np.int32)


def by_hand(network: TreeGru, of: Nodes, tree: int) -> NDArray[np.float64]:
    """The state of a tree's root, node by node, in NumPy."""
    weights = {k: v.numpy().astype(np.float64) for k, v in network.state_dict().items()}
    mean, spread = weights["scale.mean"], weights["scale.spread"]
    inside: dict[int, NDArray[np.float64]] = {}
    root = np.zeros(HIDDEN)
    for slot in reversed(range(of.parent.shape[1])):
        if of.parent[tree, slot] == ABSENT:
            continue
        below = inside.get(slot, np.zeros(HIDDEN))
        x = np.clip((of.values[tree, slot] - mean) / spread, -5, 5)
        own = weights["own.weight"] @ x + weights["own.bias"]
        old = weights["of_children.weight"] @ below
        keep = 1 / (1 + np.exp(-(own + old)[:HIDDEN]))
        reset = 1 / (1 + np.exp(-(own + old)[HIDDEN : 2 * HIDDEN]))
        new = np.tanh(own[2 * HIDDEN :] + reset * old[2 * HIDDEN :])
        state = (1 - keep) * new + keep * below
        up = int(of.parent[tree, slot])
        if up == ROOT_PARENT:
            root = root + state
        else:
            inside[up] = inside.get(up, np.zeros(HIDDEN)) + state
    return root


def test_the_states_of_roots_are_those_of_the_equations() -> None:
    torch.manual_seed(1)
    of, network = trees(6), TreeGru(len(NODE_NAMES))
    network.prepare(of)
    with torch.inference_mode():
        roots = network.roots(levels_of(of)).numpy()
    for tree in range(6):
        np.testing.assert_allclose(roots[tree], by_hand(network, of, tree), atol=2e-5)


def test_gradients_flow_to_every_weight() -> None:
    torch.manual_seed(1)
    network, (of, scores, groups) = TreeGru(len(NODE_NAMES)), known(12)
    loss = rank_loss(network.score(of), torch.from_numpy(scores), torch.from_numpy(groups))
    loss.backward()  # type: ignore[no-untyped-call]
    for name, weight in network.named_parameters():
        if name != "decode.2.bias":  # a constant ranks nothing
            assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_gradients_are_the_slopes_of_the_loss() -> None:
    """By central differences along random directions, one for each weight."""
    torch.manual_seed(1)
    network, (of, scores, groups) = TreeGru(len(NODE_NAMES)), known(12)
    network.prepare(of)
    labels, kernels = torch.from_numpy(scores), torch.from_numpy(groups)

    def loss() -> torch.Tensor:
        return rank_loss(network.score(of).double(), labels.double(), kernels)

    loss().backward()  # type: ignore[no-untyped-call]
    for name, weight in network.named_parameters():
        assert weight.grad is not None
        along = torch.randn_like(weight)
        along *= 0.01 / along.norm()
        with torch.no_grad():
            weight.add_(along)
            above = float(loss())
            weight.sub_(2 * along)
            below = float(loss())
            weight.add_(along)
        slope = float((weight.grad * along).sum())
        assert (above - below) / 2 == pytest.approx(slope, rel=0.02, abs=2e-7), name


def test_depths_count_from_the_root() -> None:
    expected = [[0, 1, 2, 2, 3], [0, 1, -1, 1, -1], [0, -1, -1, -1, -1]]
    np.testing.assert_array_equal(depths(np.array(PARENTS, np.int16)), expected)


def test_the_order_of_siblings_and_empty_slots_change_nothing() -> None:
    torch.manual_seed(0)
    network, one = TreeGru(len(NODE_NAMES)), trees(1)
    swapped = one.values[:, [0, 1, 3, 2, 4]]  # slots 2 and 3 are siblings, 4 hangs on 3
    other = Nodes(swapped, np.array([[ROOT_PARENT, 0, 1, 1, 2]], np.int16))
    empty = Nodes(
        np.pad(one.values, [(0, 0), (0, 2), (0, 0)]),
        np.pad(one.parent, [(0, 0), (0, 2)], constant_values=ABSENT),
    )
    with torch.inference_mode():
        scores = [float(network.score(x)[0]) for x in (one, other, empty)]
    assert scores[1:] == pytest.approx([scores[0]] * 2, abs=1e-6)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline training is over in a second."""
    short = replace(SCHOOLING["offline"], steps=60, blind=20, every=20, rate=3e-3, fresh_rate=3e-3)
    monkeypatch.setitem(SCHOOLING, "offline", short)


@pytest.mark.usefixtures("short")
def test_a_tree_gru_ranks_trees_that_it_has_not_seen() -> None:
    model = tree_gru("offline")
    model.fit(*known(600))
    of, scores, _ = known(300, seed=1)
    assert spearman(scores, model.predict(of)) > 0.8


@pytest.mark.usefixtures("short")
def test_what_is_loaded_is_trained_further(tmp_path: Path) -> None:
    teacher, pupil, novice = tree_gru("offline"), tree_gru(), tree_gru()
    teacher.fit(*known(600))
    teacher.save(tmp_path / "m.npz")
    pupil.load(tmp_path / "m.npz")
    few, (of, scores, _) = known(30, seed=2), known(300, seed=1)
    pupil.fit(*few)
    novice.fit(*few)
    assert (pupil.predict(of) != teacher.predict(of)).any()
    quality = [spearman(scores, m.predict(of)) for m in (pupil, novice)]
    assert quality[0] > quality[1] + 0.1


@dataclass
class Lessons:
    """Groups of the minibatches that a network learned, before and after it was last judged."""

    judged: set[int] = field(default_factory=set)
    before: list[set[int]] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)


@pytest.fixture
def lessons(monkeypatch: pytest.MonkeyPatch) -> Lessons:
    seen, descend, judge = Lessons(), neural._descend, metrics.mean_spearman

    def learned(network: neural.Module, optimizer: Adam, batch: neural.Lesson) -> None:
        seen.after.append(set(batch.groups.tolist()))
        descend(network, optimizer, batch)

    def looked(scores: Scores, predicted: Scores, groups: NDArray[np.int32]) -> float:
        seen.looks.append(judge(scores, predicted, groups))
        seen.judged |= set(groups.tolist())
        seen.before, seen.after = seen.before + seen.after, []
        return seen.looks[-1]

    monkeypatch.setattr(neural, "_descend", learned)
    monkeypatch.setattr(neural, "mean_spearman", looked)
    return seen


@pytest.mark.usefixtures("short")
def test_offline_kernels_that_decide_when_to_stop_are_not_learned_until_then(
    lessons: Lessons,
) -> None:
    of, scores, _ = known(600)
    mlp("offline").fit(roots(of), scores, (np.arange(600) // 3 % 10).astype(np.int32))
    assert lessons.judged == {4, 9}
    assert len(lessons.before) == 60
    assert not lessons.judged & set().union(*lessons.before)


@pytest.mark.usefixtures("short")
def test_all_kernels_are_learned_for_as_many_steps_as_the_held_out_ones_say(
    lessons: Lessons,
) -> None:
    of, scores, _ = known(600)
    mlp("offline").fit(roots(of), scores, (np.arange(600) // 3 % 10).astype(np.int32))
    assert len(lessons.after) == 20 * (1 + int(np.argmax(lessons.looks)))
    assert set().union(*lessons.after) == set(range(10))


@pytest.mark.usefixtures("short")
def test_inputs_are_on_the_scale_of_all_kernels() -> None:
    of, scores, _ = known(600)
    model, rows = mlp("offline"), roots(of)
    rows[:, 0] += np.repeat(np.arange(10), 60).astype(np.float32)  # another level in each kernel
    model.fit(rows, scores, np.repeat(np.arange(10), 60).astype(np.int32))
    assert model._network is not None
    mean = model._network.state_dict()["scale.mean"].numpy()
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)


@pytest.mark.usefixtures("short")
def test_a_kernel_that_is_alone_is_learned_without_a_judge(lessons: Lessons) -> None:
    of, scores, _ = known(60)
    model = mlp("offline")
    model.fit(roots(of), scores, np.zeros(60, np.int32))
    assert model.knows and not lessons.looks
    assert len(lessons.after) == SCHOOLING["offline"].blind


def test_each_fit_starts_from_what_was_loaded(tmp_path: Path) -> None:
    teacher, pupil = tree_gru(), tree_gru()
    teacher.fit(*known(60))
    teacher.save(tmp_path / "m.npz")
    pupil.load(tmp_path / "m.npz")
    said = []
    for _ in range(2):
        pupil.fit(*known(90, seed=2))
        said.append(pupil.predict(trees(9)))
    np.testing.assert_array_equal(said[0], said[1])


def test_an_empty_network_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a model that has learned"):
        mlp().save(tmp_path / "m.npz")


def test_minibatches_hold_several_rows_of_each_kernel_and_none_that_is_held_out() -> None:
    groups = np.repeat(np.arange(6), 50).astype(np.int32)
    allowed = groups != 3
    for rows in minibatches(groups, allowed, 20, np.random.default_rng(0)):
        assert allowed[rows].all()
        sizes = np.unique(groups[rows], return_counts=True)[1]
        assert len(sizes) == 4 and (sizes == 32).all()


def test_the_loss_compares_within_kernels_and_weighs_by_distance() -> None:
    labels = torch.tensor([0.0, -0.5, 5.0])
    groups = torch.tensor([0, 0, 1])
    right = float(rank_loss(torch.tensor([1.0, 0.0, 9.0]), labels, groups))
    wrong = float(rank_loss(torch.tensor([0.0, 1.0, 9.0]), labels, groups))
    assert right == pytest.approx(np.log1p(np.exp(-1)))
    assert wrong == pytest.approx(np.log1p(np.exp(1)))


def test_random_numbers_of_others_are_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    mlp().fit(*summaries())
    assert torch.equal(torch.random.get_rng_state(), before)


def summaries() -> tuple[Inputs, NDArray[np.float32], NDArray[np.int32]]:
    of, scores, groups = known(60)
    return roots(of), scores, groups


def roots(of: Nodes) -> Features:
    """Numbers of the roots that are not zero, as if they were summaries."""
    rows = np.zeros((len(of.values), len(NAMES)), np.float32)
    rows[:, :4] = of.values[:, 0, :4]
    return rows


def test_steps_are_those_of_torchs_adam() -> None:
    ours, theirs = (torch.nn.Linear(4, 3) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, weight_decay=DECAY)
    optimizer = Adam(ours.parameters(), 0.01)
    inputs = torch.arange(8.0).reshape(2, 4) / 8
    for step in range(20):
        for network, one in ((ours, optimizer), (theirs, reference)):
            network.zero_grad()
            (network(inputs) - step).square().sum().backward()
            one.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_learning_does_not_import_torchs_compiler() -> None:
    """That takes a second, in the middle of a search."""
    code = (
        "import sys, numpy as np; from hlotune.costmodel.mlp import mlp; "
        "from hlotune.schedules.features.summary import NAMES; "
        "rows = np.tile(np.arange(64, dtype=np.float32)[:, None], len(NAMES)); "
        "mlp().fit(rows, rows[:, 0] / 64, np.zeros(64, np.int32)); "
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

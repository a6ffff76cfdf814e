"""Attention's algorithm and space: what is drawn is legal, and computes what the oracle says."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import hlotune
from benchmarks.kernels.cases import CASES
from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.attention.rewriting import divided_last, rewritten
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.attention import attention
from hlotune.schedules.spaces.cpu_attention.space import AttentionSpace
from hlotune.schedules.steps.steps import Pack
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.attentions import PROGRAMS, attention_sites
from tests.support.computes import gemm

Z4, V3 = TARGETS["znver4"], TARGETS["x86-64-v3"]
SLOW = pytest.mark.slow
DRAWN = [
    ("by hand", Z4), ("grouped", Z4), ("by hand", V3),
    *(pytest.param(n, Z4, marks=SLOW) for n in PROGRAMS if n not in ("by hand", "grouped")),
]  # fmt: skip


def chosen(*names: str) -> list[object]:
    """All programs; those that are not named are slow."""
    return [n if n in names else pytest.param(n, marks=SLOW) for n in PROGRAMS]


VERIFIED = chosen(
    "plain", "by hand", "bias and mask", "grouped", "decoding", "merged", "of one product",
    "against a cache",
)  # fmt: skip


@cache
def compute(name: str) -> Compute:
    (site,) = attention_sites(name)
    return compute_of(graph_of(site.kernel))


def parts(name: str, target: CpuTarget) -> AlgorithmsSpace:
    space = space_of(compute(name), target)
    return space if isinstance(space, AlgorithmsSpace) else AlgorithmsSpace((space,))


def test_axes_have_the_names_of_their_roles_whatever_order_they_stand_in() -> None:
    stages = {s.name: s for s in rewritten(compute("grouped")).stages}
    assert [(a.name, a.extent) for a in stages["scores"].axes] == [
        ("b0", 2), ("g0", 3), ("t", 19), ("s", 21), ("d", 16),
    ]  # fmt: skip
    assert [a.name for a in stages["values"].axes] == ["b0", "g0", "t", "f", "s"]
    assert [a.name for a in stages["out"].axes] == ["b0", "g0", "t", "f"]


def test_heads_that_are_merged_are_axes_of_what_is_read() -> None:
    shapes = {t.name: t.shape for t in rewritten(compute("merged")).tensors}
    assert shapes["a0"] == shapes["a1"] == shapes["a2"] == (2, 21, 2, 24)
    assert shapes["y0"] == (42, 48)
    (out,) = rewritten(compute("merged")).stage("out").stores
    assert [str(e) for e in out.index] == ["21*b0 + t", "24*b1 + f"]


def test_parts_of_one_product_are_packed_apart() -> None:
    space = parts("of one product", Z4)
    steps = space.schedule(space.heuristic()).steps
    assert {s.tensor for s in steps if isinstance(s, Pack)} == {"a0.scores.1"}


@pytest.mark.parametrize(("target", "steps"), [(V3, 8), (Z4, 2)], ids=["few", "many"])
def test_products_have_more_steps_written_out_where_registers_are_few(
    target: CpuTarget, steps: int
) -> None:
    space = AttentionSpace(rewritten(compute("causal")), target, "attention")
    found = space.heuristic()
    for stage in ("scores", "values"):
        column = space.columns["unroll", stage]
        assert space.knobs.knobs[column - 1].values[found[column]] == steps, stage


@pytest.mark.parametrize(
    ("target", "vectors", "rows", "queries"), [(V3, 2, 4, 16), (Z4, 4, 4, 32)], ids=["few", "wide"]
)
def test_the_first_register_tile_of_scores_and_block_of_queries(
    target: CpuTarget, vectors: int, rows: int, queries: int
) -> None:
    program = hlotune.load(CASES["attention 12x128x64"].compiled(), *_heads())
    (site,) = (s for s in sites(program) if s.pattern == "attention")
    whole = rewritten(compute_of(graph_of(site.kernel)))
    space = AttentionSpace(whole, target, "attention")
    found = space.heuristic()

    def knob(kind: str, stage: str) -> int:
        column = space.columns[kind, stage]
        return space.knobs.knobs[column - 1].values[int(found[column])]

    assert (knob("vectors", "scores"), knob("rows", "scores")) == (vectors, rows)
    assert knob("tiles", "out") * knob("rows", "values") == queries


def _heads() -> list[np.ndarray[Any, Any]]:
    return [np.zeros((12, 128, 64), np.float32)] * 3


def test_keys_and_values_of_one_argument_have_copies_of_their_own() -> None:
    space = parts("shared argument", Z4)
    both = 0
    for config in (space.heuristic(), *space.sample(8, np.random.default_rng(0))):
        schedule = space.schedule(config)
        packs = [s.tensor for s in schedule.steps if isinstance(s, Pack)]
        nest = replay(compute("shared argument"), schedule, Z4)
        assert {f"{name}.packed" for name in packs} <= {s.stage.name for s in nest.stages}
        both += len(packs) == 2
    assert both, "keys and values are packed in some"


def test_dividing_last_leaves_the_division_to_the_results() -> None:
    first, last = rewritten(compute("jax")), divided_last(compute("jax"))
    assert len(last.stages) == len(first.stages) - 1
    assert "divide" in str(last.stage("out").values[0])
    assert "divide" not in "".join(str(s.values[0]) for s in last.stages[:-1])


def test_weights_that_are_rounded_are_not_divided_last() -> None:
    with pytest.raises(ScheduleError, match="expected weights that are divided by what their row"):
        divided_last(compute("bf16"))
    (part,) = parts("bf16", Z4).parts
    assert part.algorithm == "attention"


def test_strict_numerics_keep_the_order_of_the_program() -> None:
    assert space_of(compute("jax"), Z4, "strict").sketches == parts("jax", Z4).parts[1].sketches


def test_a_product_is_no_attention() -> None:
    case = gemm(16, 16, 16)
    with pytest.raises(UnsupportedKernel, match="expected attention with two products, got 1"):
        attention(case.compute)
    with pytest.raises(ScheduleError, match="attention: expected attention with two products"):
        rewritten(case.compute)


@pytest.mark.parametrize(("name", "target"), DRAWN)
def test_what_is_drawn_and_its_neighbours_are_legal_schedules(name: str, target: CpuTarget) -> None:
    rng = np.random.default_rng(0)
    space = parts(name, target)
    drawn = space.sample(3, rng)
    configs = np.concatenate([space.firsts(), drawn, space.neighbours(drawn, rng)])
    assert space.legal(configs).all()
    features = space.features(configs)
    assert features.shape == (len(configs), len(NAMES))
    assert np.isfinite(features).all()
    for config in configs:
        replay(compute(name), space.schedule(config), target)


@pytest.mark.parametrize("name", ["jax", "decoding"])
def test_schedules_are_found_again(name: str) -> None:
    space = parts(name, Z4)
    for config in space.sample(12, np.random.default_rng(1)):
        schedule = space.schedule(config)
        found = space.locate(schedule)
        assert found is not None
        assert space.schedule(found) == schedule


@pytest.mark.parametrize("name", VERIFIED)
def test_first_candidates_and_one_drawn_are_what_the_oracle_says(name: str) -> None:
    (site,) = attention_sites(name)
    target, references = host_target(), References(site.kernel)
    space = parts(name, target)
    for config in [*space.firsts(), *space.sample(1, np.random.default_rng(len(name)))]:
        built = build(compute(name), space.schedule(config), target)
        found = verify(site.kernel, built, references=references)
        assert isinstance(found, Verdict), (str(space.schedule(config).algorithm), found)

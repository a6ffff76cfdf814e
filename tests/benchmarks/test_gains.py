"""Figures of README.md: what tuning gains is made of tracked results, and others stand in pages."""

import re
from dataclasses import replace

from benchmarks import gains, page, tracked
from benchmarks.kernels import kept as kernels
from benchmarks.models.contestants import OURS, XLA
from tests.benchmarks.test_kernels_benchmark import LINE as KERNEL
from tests.benchmarks.test_models_benchmark import LINE as MODEL
from tests.benchmarks.test_models_benchmark import NCNN, with_turns
from tests.support.tree import ROOT

README = (ROOT / page.README).read_text(encoding="utf-8")


def test_the_paragraph_of_gains_is_what_tracked_results_make() -> None:
    """`make performance` puts it there."""
    said = gains.paragraph(ROOT / tracked.RESULTS)
    assert f"<!-- gains -->\n{said}\n<!-- /gains -->" in README, "run `make performance`"


def test_networks_are_told_with_their_budgets_and_those_that_are_behind() -> None:
    slow = {XLA: (0.013,) * 3, NCNN: (0.013,) * 3, OURS: (0.02,) * 3}
    behind = replace(with_turns(slow), model="mlp", tuning=replace(MODEL.tuning, seconds=120.0))
    said = gains.of_networks([MODEL, behind])
    assert "60 to 120 s of tuning make ResNet-18 2.3 times as fast as XLA and an MLP" in said
    assert said.endswith("each chosen for its model; an MLP is 54% behind ncnn.")


def test_what_is_left_to_xla_counts_with_its_time_among_first_candidates() -> None:
    left = replace(KERNEL, left_to_xla="no kernel was cut")
    assert gains.first_s(KERNEL) == KERNEL.times_s[kernels.FIRST]
    assert gains.first_s(left) == left.xla_s
    said = gains.of_kernels([KERNEL, left])
    assert said.startswith("Of 2 single kernels the first candidates, without a search, are 1.3 ")
    assert "1.0 times" not in said and "or left to XLA, in 1 (" in said


def test_figures_of_a_gpu_stand_in_its_page() -> None:
    found = re.search(r"BERT-base took (\S+) ms on that H200 instead of XLA's (\S+); ", README)
    lab = (ROOT / page.LAB / "gpu-h200-2026-11-27.md").read_text(encoding="utf-8")
    row = re.search(r"^\| model_bert_base_b8_bf16 \| (\S+) \| (\S+) \|", lab, re.MULTILINE)
    assert found and row
    assert found.groups() == tuple(f"{float(us) / 1000:.2f}" for us in row.groups())

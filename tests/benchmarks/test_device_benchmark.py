"""The benchmark of GPUs, as far as it goes without one."""

import gzip
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.device.__main__ import chosen, main
from benchmarks.device.cases import CASES, TINY, Case, as_json, from_json
from benchmarks.device.child import Child, ChildFailed
from benchmarks.device.crew import Crew, ranges
from benchmarks.device.learned import Lesson, held_out, trained
from benchmarks.device.ranking import correlation, ranking, regret
from benchmarks.device.records import Results, Row, read
from benchmarks.device.run import Run
from benchmarks.device.table import lead, means, table
from benchmarks.device.trials import MOST_LOST, MOST_WRONG, Outcomes
from benchmarks.device.whole import MODELS, Model
from hlotune.costmodel.tree_tables import TreeTables
from hlotune.schedules.errors import TargetError
from hlotune.schedules.patterns.gpu import GpuProduct
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from tests.support.tree import ROOT

KERNEL = as_json(GpuProduct(4096, 4096, 4096, "bf16"))


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    made = Child("tests.support.answering", tmp_path / "log")
    yield made
    made.stop()


def test_a_child_answers_from_a_process_of_its_own(child: Child) -> None:
    first, second = (child.ask({"do": "work"}, 20) for _ in range(2))
    assert first["asked"] == "work"
    assert first["process"] == second["process"]


def test_what_a_child_prints_is_no_answer(child: Child) -> None:
    assert child.ask({"do": "print"}, 20)["asked"] == "print"


def test_an_error_of_a_child_is_told_and_the_child_goes_on(child: Child) -> None:
    before = child.ask({"do": "work"}, 20)["process"]
    with pytest.raises(ChildFailed, match="ValueError: no such kernel"):
        child.ask({"do": "fail"}, 20)
    assert child.ask({"do": "work"}, 20)["process"] == before


def test_a_child_that_dies_leaves_its_last_words_and_is_replaced(child: Child) -> None:
    with pytest.raises(ChildFailed, match=r"died \(exit status 3\): an illegal address was met"):
        child.ask({"do": "die"}, 20)
    assert not child.running
    assert child.ask({"do": "work"}, 20)["asked"] == "work"


def test_a_child_whose_device_is_broken_is_replaced(child: Child, tmp_path: Path) -> None:
    crew = Crew(tmp_path, 0, interpret=True)
    outcomes = [crew.program(child, TINY[0], "xla_default", 20) for _ in range(2)]
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in o["error"] for o in outcomes)
    assert (child.running, child.starts) == (False, 2)


def test_a_child_that_hangs_is_killed_in_time(child: Child) -> None:
    child.ask({"do": "work"}, 20)
    begun = time.monotonic()
    with pytest.raises(ChildFailed, match=r"did not answer in 1 s \(killed\)"):
        child.ask({"do": "hang"}, 1)
    assert time.monotonic() - begun < 10
    assert not child.running


def test_kernels_of_all_cases_go_through_json() -> None:
    for case in CASES + TINY:
        assert from_json(json.loads(json.dumps(as_json(case.kernel)))) == case.kernel


def test_cases_have_names_of_their_own_and_schedules_on_every_gpu() -> None:
    assert len({c.name for c in CASES}) == len(CASES)
    for case in CASES:
        for name in ("cuda:a100", "cuda:h100", "cuda:h200"):
            assert len(gpu_space(case.kernel, gpu_target(name)).propose(4)) >= 1


def row(how: str, seconds: float, what: str = "rounds", **more: object) -> Row:
    known = {"what": what, "device": "NVIDIA H200", "case": "gemm_4096_bf16", "kernel": KERNEL}
    return {**known, "how": how, "seconds": seconds, "right": True, **more}


def test_results_are_appended_at_once_and_known_to_a_later_run(tmp_path: Path) -> None:
    first = row("hlotune", 2e-4, "time", sketch="triton_product", knobs={"warps": 8})
    other = row("hlotune", 2e-4, "time", sketch="triton_product", knobs={"warps": 4})
    elsewhere = {**first, "device": "NVIDIA H100 80GB HBM3"}
    Results(tmp_path / "a.jsonl").add(first)
    with (tmp_path / "a.jsonl").open("rb") as plain, gzip.open(tmp_path / "a.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    for earlier in ("a.jsonl", "a.gz"):
        later = Results(tmp_path / "b.jsonl", tmp_path / earlier)
        assert later.holds(first)
        assert later.seconds(first) == 2e-4
        assert not later.holds(other)
        assert not later.holds(elsewhere)
    assert not (tmp_path / "b.jsonl").exists()


def test_a_line_that_was_cut_off_ends_a_file_of_results(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    Results(file).add(row("hlotune", 2e-4))
    with file.open("a", encoding="utf-8") as out:
        out.write('{"what": "rou')
    assert [r["seconds"] for r in read(file)] == [2e-4]


def test_the_table_has_the_fastest_and_what_it_is_of_the_rivals() -> None:
    knobs = {"block_m": 128, "warps": 8}
    rows = [
        row("xla_default", 2.4e-4),
        row("torch_eager", 2.1e-4),
        row("hlotune", 2.2e-4, sketch="triton_product", knobs={"block_m": 64, "warps": 4}),
        row("hlotune", 2.0e-4, sketch="triton_product", knobs=knobs),
        row("hlotune", 1.0e-4, "time", sketch="triton_product", knobs={"block_m": 1, "warps": 1}),
    ]
    lines = table(rows).splitlines()
    assert lines[2] == (
        "| gemm_4096_bf16 | 200.0 | 240.0 | 210.0 |  |  | 1.20 | 687 | 0.50 "
        "| triton_product block_m=128 warps=8 |"
    )
    assert (
        "| xla_default | 1.200 of 1, 0 behind | 1.200 of 1, 0 behind | 1.200 of 1, 0 behind |"
        in ("\n".join(lines))
    )
    assert lines[-1] == "Geometric mean over XLA's default: 1.200, of 1 cases."


def test_means_are_of_the_cases_of_a_group_that_both_sides_have() -> None:
    rows = [
        row("xla_default", 4e-4, case="attention_1"),
        row("hlotune", 1e-4, case="attention_1", sketch="hopper_attention", knobs={}),
        row("xla_default", 9e-5, case="conv_1_3x3_s1"),
        row("hlotune", 1e-4, case="conv_1_3x3_s1", sketch="hopper_convolution", knobs={}),
        row("xla_default", 1e-4, case="softmax_1"),
    ]
    line = next(line for line in means(rows).splitlines() if line.startswith("| xla_default"))
    behind = "0.900 of 1, 1 behind"
    cells = ["xla_default", "1.897 of 2, 1 behind", behind, "", "", behind, behind, ""]
    assert line == f"| {' | '.join(cells)} |"


def test_patterns_of_cases_are_groups_in_their_order() -> None:
    groups = chosen(CASES, ["conv_32x224*", "softmax*", "*f32"])
    names = [[c.name for c in group] for group in groups]
    assert names[0] == ["conv_32x224x3_64_7x7_s2_bf16"]
    assert names[1] == ["softmax_8192x4096_f32", "softmax_8192x4096_bf16"]
    assert names[2] == ["layer_norm_8192x4096_f32", "gemm_4096_tf32"]
    assert [c for group in chosen(CASES, ["*"]) for c in group] == list(CASES)


def test_a_case_leads_by_its_fastest_rival_and_one_without_results_comes_first() -> None:
    rows = [
        row("xla_default", 2.4e-4),
        row("torch_eager", 1.8e-4),
        row("xla_default", 1e-9, "time"),
    ]
    assert lead("gemm_4096_bf16", rows) == 0
    ours = row("hlotune", 2.0e-4, sketch="triton_product", knobs={})
    assert lead("gemm_4096_bf16", [*rows, ours]) == pytest.approx(0.9)


def test_guesses_are_judged_by_their_order_and_by_what_their_first_ones_cost() -> None:
    measured = np.arange(1.0, 21.0)
    assert correlation(measured * 3, measured) == pytest.approx(1)
    assert correlation(-measured, measured) == pytest.approx(-1)
    assert regret(measured, measured) == 0
    assert regret(-measured, measured) == 12


def test_the_ranking_has_cases_whose_schedules_their_spaces_still_have() -> None:
    space = gpu_space(GpuProduct(4096, 4096, 4096, "bf16"), gpu_target("cuda:h200"))
    named = [space.named(c) for c in space.propose(13)]
    rows = [
        row("hlotune", 1e-4 + 1e-6 * n, "time", sketch=sketch, knobs=knobs)
        for n, (sketch, knobs) in enumerate(named)
    ]
    gone = row("hlotune", 1e-6, "time", sketch="triton_product", knobs={"block_m": 64})
    lines = ranking([*rows, gone, row("xla_default", 2e-4)]).splitlines()
    assert lines[2].startswith("| gemm_4096_bf16 | 13 | ")
    assert lines[-1].endswith("of 1 cases.")
    assert ranking([row("xla_default", 2e-4)]).splitlines()[-1] == "| --- | --- | --- | --- |"


def measured_rows(names: dict[str, GpuProduct]) -> list[Row]:
    """Twenty schedules of each, whose times are no function of the roofline."""
    rows = []
    for name, product in names.items():
        space = gpu_space(product, gpu_target("cuda:h200"))
        for n, config in enumerate(space.configs[:: len(space.configs) // 20][:20]):
            sketch, knobs = space.named(config)
            more = {"case": name, "kernel": as_json(product), "sketch": sketch, "knobs": knobs}
            rows.append(row("hlotune", 1e-4 + 1e-6 * (n % 7), "time", **more))
    return rows


def test_trees_are_judged_by_cases_whose_extents_they_have_not_seen() -> None:
    extents = {f"gemm_{n}_bf16": GpuProduct(n, n, n, "bf16") for n in (512, 1024, 2048, 4096)}
    rows = measured_rows({**extents, "gemm_512_tf32": GpuProduct(512, 512, 512, "tf32")})
    told: list[set[str]] = []

    def train(known: Mapping[str, Lesson]) -> TreeTables:
        told.append(set(known))
        return trained(known)

    page = held_out(rows, train)
    everything = {*extents, "gemm_512_tf32"}
    left_out = [everything - names for names in told]
    assert sorted(map(len, left_out)) == [1, 1, 1, 2]
    assert {"gemm_512_bf16", "gemm_512_tf32"} in left_out
    assert page.splitlines()[-1].startswith("| mean | 100 | ")


def test_clocks_are_kept_as_ranges() -> None:
    seen = [{"sm_mhz": 1500.0}, {}, {"sm_mhz": 1980.0, "watts": 700.0}]
    assert ranges(seen) == {"sm_mhz": (1500.0, 1980.0), "watts": (700.0, 700.0)}


def test_small_kernels_go_the_whole_way_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiled in one child, verified and timed in another, in rounds beside XLA's default."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert main(["--tiny", "--cases", "softmax*", "--compilers", "1", "--seconds", "12"]) == 0
    rows = list(read(tmp_path / "device.jsonl"))
    tried = [r for r in rows if r["what"] == "time" and r["how"] == "hlotune"]
    assert tried
    assert all(r["right"] for r in tried)
    assert {r["how"] for r in rows if r["what"] == "rounds"} == {"xla_default", "hlotune"}
    assert "Geometric mean over XLA's default" in capsys.readouterr().out
    assert main(["--table", str(tmp_path / "device.jsonl")]) == 0
    assert "| softmax_8x100_f32 |" in capsys.readouterr().out


def test_a_file_of_results_that_is_missing_is_one_clear_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--table", "missing.jsonl"])
    assert ended.value.code == 2
    assert "expected a file of results, and missing.jsonl is none" in capsys.readouterr().err


class NoCrew(Crew):
    """A crew whose first answer is given."""

    def __init__(self, answer: dict[str, str] | None):
        self.interpret, self._answer = False, answer

    def start(self) -> dict[str, str]:
        if self._answer is None:
            raise ChildFailed("measuring died (exit status 1): no module named jax")
        return self._answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"platform": "cpu", "device": "cpu"}, "expected a GPU, and JAX has 'cpu': --tiny"),
        (None, "expected a device that JAX can use: measuring died"),
    ],
    ids=["a processor", "nothing"],
)
def test_a_machine_without_a_gpu_is_one_clear_error(
    answer: dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    run = Run(Results(tmp_path / "a.jsonl"), NoCrew(answer), seconds=5)
    with pytest.raises(TargetError, match=message):
        run.everything([CASES])


class Ordered(Run):
    """A run that notes what it would measure."""

    def _look(self) -> None:
        self.device, self.seen = "NVIDIA H200", list[str]()

    def _case(self, case: Case) -> None:
        self.seen.append(case.name)

    def _models(self, models: Sequence[Model]) -> None:
        self.seen += [m.name for m in models]


def test_cases_without_results_come_first_then_models_then_what_is_furthest_behind(
    tmp_path: Path,
) -> None:
    results = Results(tmp_path / "a.jsonl")
    for case, seconds in (("gemm_4096_bf16", 1e-4), ("softmax_8192x4096_f32", 3e-4)):
        results.add(row("xla_default", 2e-4, case=case))
        results.add(row("hlotune", seconds, case=case, sketch="s", knobs={}))
    run = Ordered(results, NoCrew(None), seconds=60)
    names = ("gemm_4096_bf16", "attention_16x2048x128", "softmax_8192x4096_f32")
    cases = [next(c for c in CASES if c.name == name) for name in names]
    run.everything([cases], MODELS[:1])
    assert run.seen == [
        "attention_16x2048x128",
        "model_resnet50_b32_bf16",
        "softmax_8192x4096_f32",
        "gemm_4096_bf16",
    ]


def test_a_machine_that_measures_needs_nothing_that_searching_needs() -> None:
    lacking = ("xgboost", "torch", "sqlite_utils", "typer", "rich", "matplotlib")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({lacking}));"
        "import benchmarks.device.__main__, benchmarks.device.measuring,"
        "benchmarks.device.compiling, benchmarks.device.models"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_sketch_that_costs_children_or_is_never_right_is_left_out() -> None:
    outcomes, wrong = Outcomes(), {"right": False}
    for _ in range(MOST_LOST):
        assert not outcomes.given_up("hangs")
        outcomes.add("hangs", wrong, lost=True)
    for _ in range(MOST_WRONG):
        assert not outcomes.given_up("wrong")
        outcomes.add("wrong", wrong, lost=False)
        outcomes.add("mixed", wrong, lost=False)
    outcomes.add("mixed", {"right": True}, lost=False)
    assert [outcomes.given_up(s) for s in ("hangs", "wrong", "mixed", "new")] == [1, 1, 0, 0]

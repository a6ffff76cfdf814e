"""Which rows against peers fall short, and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ports
from benchmarks.inner_loop import InnerLoop
from benchmarks.page import LAB
from benchmarks.peers import shortfalls
from benchmarks.peers.contestants import Weights
from benchmarks.peers.records import Status
from benchmarks.peers.rounds import Turns
from benchmarks.peers.shortfalls import (
    HEAD,
    NO_CORE,
    NO_LOOP,
    PAGE,
    Short,
    clock,
    loop_of,
    page,
    reasons,
    short_of,
    table,
)
from benchmarks.ports import count
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.timing.comparison import Ratio
from hlotune.schedules.steps.schedule import DEFAULT
from tests.benchmarks.test_inner_loop import the_loop
from tests.benchmarks.test_peers import recorded
from tests.benchmarks.test_peers_table import TARGET, a_pass, rows
from tests.benchmarks.test_results_page import CONDITIONS
from tests.support.applied import DIRECT
from tests.support.tree import ROOT

AHEAD = Ratio(1.2, 1.1, 1.3)


def test_what_reaches_everything_is_not_named() -> None:
    row = replace(rows(a_pass("C1"))[1], share=0.95, over_peer=AHEAD)
    assert not list(reasons(row))


@pytest.mark.parametrize(
    ("case", "weights", "share", "why"),
    [
        ("C1", "arguments", 0.93, "93% of 94% (FMA)"),
        ("C1", "arguments", 0.94, ""),
        ("C3", "arguments", 0.79, "79% of 80% (FMA)"),
        ("D1", "arguments", 0.01, ""),
        ("C6", "constants", 2.4, "240% of 250% (FMA)"),
        ("C6", "arguments", 1.2, ""),
        ("gemm_1x4096x4096", "arguments", 0.89, "89% of 90% (fastest read)"),
        ("gemm_512_bf16", "arguments", 0.1, ""),
    ],
)
def test_the_share_of_the_roof_must_be_that_of_its_kind(
    case: str, weights: Weights, share: float, why: str
) -> None:
    row = next(r for r in rows(a_pass(case)) if r.weights == weights)
    assert ", ".join(reasons(replace(row, share=share, over_peer=AHEAD))) == why


def test_who_is_more_than_a_little_behind_the_best_peer_is_named_with_it() -> None:
    row = replace(rows(a_pass("D1"))[0], peer="onnxruntime arguments")
    assert list(reasons(replace(row, over_peer=Ratio(0.96, 0.9, 1.0)))) == [
        "0.96 of onnxruntime arguments"
    ]
    assert not list(reasons(replace(row, over_peer=Ratio(0.98, 0.9, 1.0))))


def test_what_kept_the_default_falls_short_and_what_was_not_tuned_is_not_judged() -> None:
    status: dict[Weights, Status] = {"arguments": "kept xla", "constants": "not tuned"}
    found = rows(a_pass("D1", status=status))
    assert short_of(found) == {0: ["kept xla", "0.70 of onnxruntime arguments"]}


def test_a_narrow_type_must_gain_over_the_wide_one() -> None:
    slow = {"hlotune arguments": Turns((1.5e-3,) * 8, 5)}
    wide = [replace(r, share=1.0, over_peer=AHEAD) for r in rows(a_pass("gemm_1024"))]
    found = short_of([*wide, *rows(a_pass("gemm_1024_bf16", changes=slow))])
    assert found == {
        2: ["1.33 of 1.6 times gemm_1024"],
        3: ["1.00 of 1.6 times gemm_1024"],
    }


def test_the_table_says_how_many_of_how_many() -> None:
    row = rows(a_pass("C1"))[1]
    short = Short(row=row, reasons=("93% of 94% (FMA)",), loop="why")
    made = table([short], 20, 4e9)
    assert made.notes[0] == "1 of 20 rows fall short, 5%"
    assert len(made.rows[0]) == len(made.columns)
    assert "## C1_frozen\n\n93% of 94% (FMA)" in page([short], 4e9, CONDITIONS)


def test_the_clock_is_the_one_that_makes_the_peak() -> None:
    assert TARGET is TARGETS["znver4"]
    assert clock(32 * TARGET.threads * 4e9, TARGET) == pytest.approx(4e9)


def test_of_an_unknown_core_no_cycles_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "CORES", {})
    row = rows(a_pass("C1"))[0]
    assert clock(1e12, TARGET) is None
    database = recorded(tmp_path / "a.db", "C1", DIRECT)
    assert loop_of(row, database, host_target(), "model") == NO_CORE
    short = Short(row=row, reasons=("slow",), loop=NO_CORE)
    made = table([short], 1, None)
    assert set(made.rows[0][4:]) == {"-"}
    assert made.notes[1:] == [f"{NO_CORE}, so that no cycles are counted"]
    assert f"No loop: {NO_CORE}." in page([short], None, CONDITIONS)


def test_a_narrow_type_behind_the_best_peer_is_named_but_not_for_its_share() -> None:
    narrow = replace(
        rows(a_pass("C6_nchw_bf16"))[1], over_peer=Ratio(0.62, 0.5, 1.0), share=0.46,
        peer="openvino constants",
    )  # fmt: skip
    assert list(reasons(narrow)) == ["0.62 of openvino constants"]
    wide = rows(a_pass("C6"))[1]
    told = "bf16 and int8: no shares of a peak were set out for them, as for f32"
    named = {r.case: table([Short(row=r, reasons=(), loop="why")], 1, 4e9) for r in (narrow, wide)}
    assert told in named["C6_nchw_bf16"].notes and told not in named["C6"].notes


def test_a_row_that_kept_the_default_says_why_in_the_place_of_a_loop(tmp_path: Path) -> None:
    arguments, constants = rows(a_pass("C1"))
    why = loop_of(arguments, recorded(tmp_path / "a.db", "C1", DEFAULT), host_target(), "model")
    assert isinstance(why, str) and why.startswith("kept default: the best candidate reached 1.00x")
    short = [Short(row=r, reasons=("kept xla",), loop=why) for r in (arguments, constants)]
    assert table(short, 2, 4e9).notes[-1] == f"no loop of C1 (arguments), C1 (constants): {why}"
    assert f"## C1\n\nkept xla\n\nNo loop: {why}.\n" in page(short, 4e9, CONDITIONS)


def test_a_tuned_row_without_a_loop_of_multiply_adds_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortfalls, "has_core", lambda _: True)
    monkeypatch.setattr(shortfalls, "inner_loop", lambda *_: None)
    database = recorded(tmp_path / "a.db", "C1", DIRECT)
    assert loop_of(rows(a_pass("C1"))[0], database, host_target(), "model") == NO_LOOP


def a_loop() -> InnerLoop:
    found = the_loop()
    return InnerLoop(
        algorithm="direct", loop=found, count=count(found.body), cycles={"loads": 3.0}, flops=96,
        passes=1e6,
    )  # fmt: skip


def test_loops_stand_on_a_page_once_with_neighbours_of_one_name_in_a_line() -> None:
    short = [Short(row=r, reasons=("slow",), loop=a_loop()) for r in rows(a_pass("C1"))]
    made = page(short, 4e9, CONDITIONS)
    assert made.startswith(f"{HEAD}\nTest CPU, 2 threads")
    one, other = made.partition("## C1_frozen")[::2]
    assert (
        "vfmadd231ps %zmm30, %zmm28, %zmm0 | (%rsi), %zmm30, %zmm1 | "
        "64(%rsi){1to16}, %zmm30, %zmm1\naddq $2, %rcx\n"
    ) in one
    assert "vfmadd231ps" not in other and "\nthe loop of C1\n" in other
    for part in (one, other):
        assert "direct; a pass of stage_0 .LBB1_2: 3 multiply adds" in part


def test_the_loops_are_written_into_the_page_that_the_table_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / LAB / "peers.md").read_text(encoding="utf-8")
    assert f"[{PAGE.name}]({PAGE.name})" in text and PAGE.parent == LAB
    assert (ROOT / PAGE).read_text(encoding="utf-8").startswith(HEAD)
    monkeypatch.chdir(tmp_path)
    PAGE.parent.mkdir(parents=True)
    status: dict[Weights, Status] = {"arguments": "kept xla", "constants": "not tuned"}
    kept = {"D1": [a_pass("D1", status=status)]}
    monkeypatch.setattr(shortfalls, "kept", lambda case: kept.get(case, []))
    monkeypatch.setattr(shortfalls, "loop_of", lambda *_: "out of luck")
    monkeypatch.setattr("sys.argv", ["shortfalls"])
    shortfalls.main()
    assert "## D1\n\nkept xla; 0.70 of onnxruntime arguments\n\nNo loop" in PAGE.read_text()

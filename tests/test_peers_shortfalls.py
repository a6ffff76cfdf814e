"""Which rows against peers fall short, and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ports
from benchmarks.peers.contestants import Weights
from benchmarks.peers.records import Status
from benchmarks.peers.rounds import Turns
from benchmarks.peers.shortfalls import Short, clock, loop_of, page, reasons, short_of, table
from hlotune.measure.comparison import Ratio
from hlotune.measure.targets import TARGETS, host_target
from tests.applied import DIRECT
from tests.test_peers import recorded
from tests.test_peers_table import TARGET, a_pass, rows

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
    assert short_of(found) == {0: ["kept xla"]}


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
    short = Short(row=row, reasons=("93% of 94% (FMA)",), loop=None)
    made = table([short], 20, 4e9)
    assert made.notes[0] == "1 of 20 rows fall short, 5%"
    assert len(made.rows[0]) == len(made.columns)
    assert "## C1_frozen\n\n93% of 94% (FMA)" in page([short], 4e9)


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
    assert loop_of(row, database, host_target(), "model") is None
    made = table([Short(row=row, reasons=("slow",), loop=None)], 1, None)
    assert set(made.rows[0][4:]) == {"-"}
    assert "nothing is known of this processor's core" in made.notes[1]

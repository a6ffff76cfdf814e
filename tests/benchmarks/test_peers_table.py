"""What the benchmark against peers keeps of its passes, and what its table makes of them."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers.arena import timed_before
from benchmarks.peers.contestants import Weights, contestants
from benchmarks.peers.passes import Pass, keep, kept, to_json
from benchmarks.peers.process import Refusal
from benchmarks.peers.records import OwnTime, Status
from benchmarks.peers.roofs import Peaks
from benchmarks.peers.rounds import Outcome, Turns
from benchmarks.peers.table import Row, rows_of, table
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.errors import DatabaseError
from tests.benchmarks.test_results_page import CONDITIONS

TARGET = TARGETS["znver4"]
TUNED: dict[Weights, Status] = {"arguments": "tuned", "constants": "tuned"}
MILLISECONDS = {
    "xla arguments": 4.0,
    "xla constants": 3.0,
    "hlotune arguments": 2.0,
    "hlotune constants": 1.0,
    "pytorch eager": 2.5,
    "pytorch constants": 2.2,
    "onnxruntime arguments": 2.1,
    "onnxruntime constants": 1.5,
    "openvino arguments": 5.0,
    "openvino constants": 5.0,
}


def a_pass(
    case: str = "C6",
    *,
    status: Mapping[Weights, Status] = TUNED,
    changes: Mapping[str, Outcome] | None = None,
    rounds: int = 8,
) -> Pass:
    timed = {name: Turns((ms * 1e-3,) * rounds, 5) for name, ms in MILLISECONDS.items()}
    return Pass(
        case=case,
        key="k",
        conditions={**CONDITIONS, "read_bytes_per_s": 4e10, "versions": {"xla": "1"}},
        status=status,
        own={"arguments": OwnTime(2e-3, None), "constants": OwnTime(1e-3, 3e11)},
        outcomes={**timed, **(changes or {})},
    )


def rows(*passes: Pass) -> list[Row]:
    peaks = Peaks.of(p.conditions for p in passes)
    return rows_of(passes, contestants(Path("a.db")), TARGET, peaks)


def test_the_default_stands_in_its_better_form_and_peers_by_the_kind_of_weights() -> None:
    arguments, constants = rows(a_pass())
    assert arguments.default_s == constants.default_s == 3e-3
    assert (arguments.over_default.median, constants.over_default.median) == (1.5, 3.0)
    assert (arguments.peer, constants.peer) == ("onnxruntime arguments", "onnxruntime constants")
    assert arguments.over_peer and arguments.over_peer.median == pytest.approx(1.05)
    assert constants.over_peer and constants.over_peer.median == pytest.approx(1.5)


def test_a_kernel_that_kept_xla_counts_as_one_and_not_won() -> None:
    kept_xla: dict[Weights, Status] = {"arguments": "tuned", "constants": "kept xla"}
    left = Refusal("unsupported", "left to XLA: not faster")
    _, constants = rows(a_pass(status=kept_xla, changes={"hlotune constants": left}))
    assert not constants.won and constants.ours_s == constants.default_s == 3e-3
    assert constants.over_default.median == 1.0
    assert constants.over_peer and constants.over_peer.median == pytest.approx(0.5)
    assert table([constants], {}).rows[0][-1] == "kept xla, not won"


def test_what_was_not_tuned_goes_into_no_figure() -> None:
    found = rows(a_pass(status={"arguments": "tuned", "constants": "not tuned"}))
    notes = "\n".join(table(found, {}).notes)
    assert "not tuned, and in no figure below: 1 rows" in notes
    assert "weights as arguments: conv2d 1.50 (1 of 1 won)" in notes
    assert "weights as constants" not in notes
    assert "or within 3 %: 1 of 1 f32 rows" in notes


def test_a_wrong_result_of_ours_is_no_win() -> None:
    wrong = Refusal("wrong_result", "differs")
    _, constants = rows(a_pass(changes={"hlotune constants": wrong}))
    assert not constants.won and constants.over_default.median == 1.0
    assert table([constants], {}).rows[0][-1] == "failed"
    assert constants.refusals == {"hlotune constants": "wrong_result: differs"}


def test_a_table_without_a_required_peer_says_that_it_is_invalid() -> None:
    gone: dict[str, Outcome] = {
        f"onnxruntime {form}": Refusal("missing", "") for form in ("arguments", "constants")
    }
    found = rows(a_pass(changes=gone))
    assert table(found, {}).notes[0].startswith("INVALID: without onnxruntime")
    assert found[0].peer == "pytorch eager"


def test_a_row_that_one_peer_could_not_do_is_named() -> None:
    no = Refusal("unsupported", "")
    gone: dict[str, Outcome] = {"openvino arguments": no, "openvino constants": no}
    notes = table([*rows(a_pass("C2")), *rows(a_pass("C6", changes=gone))], {}).notes
    assert "without openvino: C6 (arguments), C6 (constants)" in notes
    assert "by other names: C2D3 is C9" in table(rows(a_pass("C9")), {}).notes
    assert not notes[0].startswith("INVALID")


def test_rows_behind_the_best_peer_are_named() -> None:
    slow = Turns((2.0e-3,) * 8, 5)
    notes = table(rows(a_pass(changes={"hlotune constants": slow})), {}).notes
    assert "behind the best peer: C6 (constants)" in notes
    assert "ahead of the best peer, or within 3 %: 1 of 2 f32 rows" in notes


def test_passes_are_put_together_round_by_round() -> None:
    one = rows(a_pass(rounds=4), a_pass(rounds=4))[0]
    assert one.passes == 2
    assert one.over_default.low == 1.5  # eight pairs prove something, four do not


def test_a_peer_that_failed_in_one_pass_is_not_compared() -> None:
    gone: dict[str, Outcome] = {"onnxruntime constants": Refusal("crash", "")}
    assert rows(a_pass(), a_pass(changes=gone))[1].peer == "onnxruntime arguments"


def test_a_peer_that_is_faster_with_weights_as_arguments_counts_so_for_constants_too() -> None:
    fast: dict[str, Outcome] = {"onnxruntime arguments": Turns((1.2e-3,) * 8, 5)}
    constants = rows(a_pass(changes=fast))[1]
    assert constants.peer == "onnxruntime arguments"
    assert constants.over_peer and constants.over_peer.median == pytest.approx(1.2)


def test_the_table_says_what_hlotune_was_tuned_for() -> None:
    assert "hlotune was tuned for the cache mode `warm`" in table(rows(a_pass()), {}, "warm").notes


def test_shares_are_of_the_largest_peak_and_of_memory_for_what_no_cache_holds() -> None:
    higher = replace(a_pass(), conditions={**a_pass().conditions, "peak_flop_per_s": {"f32": 4e11}})
    one = rows(a_pass(), higher)[0]
    assert one.roof == "FMA"
    assert one.share == pytest.approx(CASES_C6_FLOPS / 4e11 / 2e-3)
    thin = rows(a_pass("gemm_1x4096x4096"))[0]
    assert thin.roof == "fastest read"
    assert thin.share == pytest.approx(4 * (4096 * 4096 + 2 * 4096) / 4e10 / 2e-3)


def test_a_share_is_of_the_peak_beside_the_kernel_where_it_was_measured() -> None:
    _, frozen = rows(a_pass())
    assert frozen.share == pytest.approx(CASES_C6_FLOPS / 3e11 / 1e-3)


CASES_C6_FLOPS = 2 * 128 * 128 * (28 * 3 - 2) ** 2
"""A row of 28 has 28 real taps in the middle of a window of three and 27 on either side."""


def test_what_has_no_weights_has_one_row() -> None:
    status: dict[Weights, Status] = {"arguments": "tuned"}
    assert [r.weights for r in rows(a_pass("C6_weight_gradient", status=status))] == ["arguments"]


def test_passes_are_kept_and_broken_lines_are_skipped(tmp_path: Path) -> None:
    first = a_pass(changes={"tvm arguments": Refusal("missing", "no environment")})
    keep(first, tmp_path)
    with (tmp_path / "C6.jsonl").open("a") as file:
        file.write('{"case": "C6", "key"\n')
    keep(first, tmp_path)
    assert kept("C6", tmp_path) == [first, first]
    assert kept("C7", tmp_path) == []


def test_passes_with_other_schedules_or_versions_count_no_more(tmp_path: Path) -> None:
    keep(a_pass(), tmp_path)
    newer = replace(a_pass(), key="other")
    keep(newer, tmp_path)
    assert kept("C6", tmp_path) == [newer]
    assert to_json(newer)["outcomes"]["xla arguments"]["calls"] == 5


def test_kernels_that_an_earlier_pass_timed_are_not_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert timed_before("C6", "k") == {}
    keep(a_pass())
    assert timed_before("C6", "k") == a_pass().own
    assert timed_before("C6", "other") == {}


def test_an_unknown_case_is_misuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["peers", "--cases", "C99"])
    with pytest.raises(SystemExit):
        command.parsed()
    assert "got C99" in capsys.readouterr().err


class NoArena:
    """One whose records cannot be read."""

    def lacks(self, case: str, passes: int) -> bool:
        raise DatabaseError("expected a database, got noise")


def test_a_case_that_cannot_be_measured_is_named_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arena: Any = NoArena()
    assert command.one_pass(arena, ["C6", "C7"], 1, inf, prepare=False)
    said = capsys.readouterr().out
    assert said.count("not measured: expected a database, got noise") == 2


def test_those_who_could_and_did_not_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    command.report("C6", {"a": Refusal("unsupported", "x"), "b": Refusal("crash", "signal 11")})
    assert capsys.readouterr().out == "C6: 1 failed\n  b: crash: signal 11\n"

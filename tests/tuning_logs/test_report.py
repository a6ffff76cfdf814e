"""The report of a run: figures from records, tables, and JSON that keeps to its schema."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlotune.measure.timing.timing import RESOLUTION_S
from hlotune.schedules.errors import NoRecord
from hlotune.tuning_logs import report as report_module
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import (
    BEYOND,
    kernel_time_text,
    ratio_text,
    render,
    seldom_text,
    time_text,
)
from hlotune.tuning_logs.report import KernelReport, Report, report, to_json
from tests.support.recorded import KERNEL, TARGET, TOOLCHAIN, fill, final, kernel, measured, start

SCHEMA = json.loads(Path(report_module.__file__).with_name("report.schema.json").read_text())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as database:
        yield database


@pytest.fixture
def full(database: Database) -> Report:
    return report(database, fill(database))


def of(report: Report, label: str) -> KernelReport:
    return next(k for k in report.kernels if k.label == label)


def test_a_kernel_that_won_shows_its_gain(full: Report) -> None:
    won = of(full, "add [8]")
    assert (won.decision, won.won, won.speedup) == ("tuned", True, 2.0)
    assert won.champion is not None
    assert (won.champion.default_s, won.champion.tuned_s, won.used_s) == (2e-3, 1e-3, 1e-3)
    assert (won.sites, won.calls, won.trials, won.failures) == (2, 2.0, 3, 1)
    assert won.algorithm == "direct"


def test_a_kernel_kept_at_xla_counts_as_one_and_not_won(full: Report) -> None:
    kept = of(full, "multiply [8]")
    assert (kept.decision, kept.won, kept.speedup) == ("kept xla", False, 1.0)
    assert kept.champion is not None
    assert kept.used_s == kept.champion.default_s
    assert kept.champion.speedup == 0.98


def test_a_default_in_two_modes_is_said_to_be_and_counts_by_its_fast_one(
    database: Database,
) -> None:
    run = start(database)
    timed = replace(final(2.0).paired, default_s=(2e-3, 4e-3) * 5, tuned_s=(1e-3,) * 10)
    database.record_final(run, KERNEL, replace(final(2.0), paired=timed))
    found = report(database, run)
    (one,) = found.kernels
    assert one.champion is not None
    assert (one.champion.default_s, one.champion.default_slow_s) == (2e-3, 4e-3)
    said = f"the default of {KERNEL.key[:8]} ran in two modes, 2.00 ms and, in 50% of its samples"
    assert said in render(found, color=False)
    assert list(violations(json.loads(to_json(found)), SCHEMA)) == []


def test_several_defaults_in_two_modes_are_named_in_one_line(database: Database) -> None:
    run = start(database)
    timed = replace(final(2.0).paired, default_s=(2e-3, 4e-3) * 5, tuned_s=(1e-3,) * 10)
    for one in (KERNEL, other := kernel(op="multiply")):
        database.record_final(run, one, replace(final(2.0), paired=timed))
    said = " ".join(render(report(database, run), color=False).split())
    assert "the defaults of 2 kernels ran in two modes, as their threads shared" in said
    assert said.count("two modes") == 1
    for one in (KERNEL, other):
        assert f"{one.key[:8]} 2.00 ms and 4.00 ms (50%)" in said
    assert "no search: 2 first candidates built, verified and compared" in said


def test_a_default_in_one_mode_is_not_said_to_have_two(full: Report) -> None:
    assert "two modes" not in render(full, color=False)


def test_the_default_as_its_own_champion_is_no_win(database: Database) -> None:
    from hlotune.schedules.steps.schedule import DEFAULT

    run = start(database)
    database.record_final(run, KERNEL, replace(final(1.5), schedule=DEFAULT))
    assert report(database, run).won == 0


def test_a_champion_that_was_taken_back_says_why(database: Database) -> None:
    run = start(database)
    wrong = replace(final(2.0), outcome="kept default", withdrawn="wrong in the program")
    database.record_final(run, KERNEL, wrong)
    found = report(database, run)
    (kernel,) = found.kernels
    assert (kernel.won, kernel.speedup, kernel.withdrawn) == (False, 1.0, "wrong in the program")
    assert "kept xla: wrong in the program" in render(found, color=False)
    assert list(violations(json.loads(to_json(found)), SCHEMA)) == []


def test_a_kernel_without_a_final_is_not_compared(full: Report) -> None:
    unfinished = of(full, "divide [8]")
    assert (unfinished.decision, unfinished.won) == ("not compared", False)
    assert unfinished.champion is None
    assert unfinished.used_s is None
    (line,) = (x for x in render(full, color=False).splitlines() if "divide [8]" in x)
    assert "1.00" not in line and "not compared" in line


def test_rates_are_of_the_code_that_is_used(full: Report) -> None:
    won, kept = of(full, "add [8]"), of(full, "multiply [8]")
    assert won.flop_per_s == pytest.approx(40e6 / 1e-3)
    assert won.share_of_peak == pytest.approx(40e6 / 1e-3 / 2e11)
    assert kept.flop_per_s == pytest.approx(40e6 / 0.98e-3)


def test_shares_above_the_peak_are_explained(full: Report) -> None:
    beyond = replace(full, kernels=tuple(replace(k, share_of_peak=2.5) for k in full.kernels))
    assert BEYOND in render(beyond) and "250%" in render(beyond)
    assert BEYOND not in render(full)


def test_without_arithmetic_or_peak_there_are_no_rates(database: Database) -> None:
    run = database.start_run(None, TARGET, TOOLCHAIN)
    database.record_final(run, KERNEL, final(2.0))
    database.record_final(run, kernel(16), replace(final(2.0), flops=None, dtype=None))
    by_key = {k.key: k for k in report(database, run).kernels}
    assert by_key[KERNEL.key].flop_per_s is not None
    assert by_key[KERNEL.key].share_of_peak is None
    assert by_key[kernel(16).key].flop_per_s is None


def test_kernels_stand_in_the_order_of_their_time_in_the_program(full: Report) -> None:
    assert [k.label for k in full.kernels] == ["multiply [8]", "add [8]", "divide [8]"]


def test_the_whole_program_is_told_with_interval_and_error(full: Report) -> None:
    assert full.whole is not None
    assert (full.whole.speedup, full.whole.speedup_low) == (1.5, 1.47)
    assert (full.relative_error, full.default_relative_error) == (1.2e-6, 0.9e-6)
    assert (full.wall_s, full.trials, full.won, full.seed) == (12.5, 5, 1, 7)


def test_a_time_that_the_clock_cannot_tell_is_an_upper_bound() -> None:
    times_s = (None, 4.9e-7, RESOLUTION_S, 5.1e-7)
    assert [kernel_time_text(t) for t in times_s] == ["-", "<500 ns", "<500 ns", "510 ns"]


def test_other_runs_are_left_out(database: Database) -> None:
    run = fill(database)
    before = report(database, run)
    other = fill(database)
    database.add(other, KERNEL, [measured(1e-4, 50)], batch=2)
    database.record_final(other, KERNEL, final(9.0))
    assert report(database, run) == before


def test_a_program_is_reported_by_its_newest_run(database: Database) -> None:
    fill(database)
    newest = fill(database)
    assert report(database, "mlp").run == newest


def test_the_head_names_the_machine_with_its_kind_of_core(database: Database) -> None:
    run = fill(database)
    text = render(report(database, run), color=False)
    assert "on Test CPU (znver4), 2 threads" in text
    assert "5 trials of candidates, 12.5 s" in text
    with database.writing() as sql:
        sql.execute("update targets set identity = 'x'")
    assert "on Test CPU, 2 threads" in render(report(database, run), color=False)


def test_a_run_that_is_not_recorded_is_no_record(database: Database) -> None:
    with pytest.raises(NoRecord, match="expected a recorded run, got 'abc'"):
        report(database, "abc")


def test_a_final_that_does_not_parse_is_not_compared(database: Database) -> None:
    run = fill(database)
    with database.writing() as sql:
        sql.execute("update finals set schedule = '?'")
    assert report(database, run).won == 0
    assert database.unreadable == 2


def test_json_keeps_to_the_committed_schema(full: Report) -> None:
    assert list(violations(json.loads(to_json(full)), SCHEMA)) == []


def test_json_of_a_run_that_did_not_finish_keeps_to_the_schema(database: Database) -> None:
    bare = report(database, start(database))
    assert (bare.wall_s, bare.whole, bare.kernels) == (None, None, ())
    assert list(violations(json.loads(to_json(bare)), SCHEMA)) == []


def test_the_check_against_the_schema_finds_what_is_wrong(full: Report) -> None:
    data = json.loads(to_json(full))
    data["kernels"][0]["decision"] = "lost"
    data["kernels"][1]["champion"]["speedup"] = "fast"
    data["trials"] = -1
    data["extra"] = 1
    del data["seed"]
    assert sorted(violations(data, SCHEMA)) == [
        "report.extra: not in the schema",
        "report.kernels[0].decision: not one of ['tuned', 'tuned together', 'kept xla', "
        "'not compared']",
        "report.kernels[1].champion.speedup: not of type ['number']",
        "report.seed: missing",
        "report.trials: below 0",
    ]


def test_the_table_shows_kept_kernels_and_counts_the_won(full: Report) -> None:
    text = render(full, color=False)
    lines = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert "kept xla" in lines["multiply [8]"]
    assert lines["multiply [8]"].endswith("no")
    assert " 1.00 " in lines["multiply [8]"]
    assert lines["add [8]"].endswith("tuned: direct  yes")
    assert lines["all kernels"].endswith("1 of 3")
    assert "whole program: default 1.50 ms, tuned 1.00 ms: 1.50x (95 % interval 1.47 to" in text


def test_the_table_is_plain_text_away_from_a_terminal(full: Report) -> None:
    assert "\x1b" not in render(full)
    assert "\x1b" in render(full, color=True)


def test_a_failure_message_is_shown_as_it_is(full: Report) -> None:
    assert "[bold]3 of 8 elements[/bold]" in render(full)


def test_a_long_label_does_not_push_figures_out(full: Report) -> None:
    kernels = tuple(replace(k, label=k.label * 20) for k in full.kernels)
    text = render(replace(full, kernels=kernels))
    assert "2.00 ms" in text
    assert text.count("…") == len(kernels)  # of the labels alone: they say that there is more


def test_a_long_decision_does_not_push_figures_out_either(full: Report) -> None:
    long = "split_reduction(r0, 2, r0, 1) " * 3
    kernels = tuple(replace(k, label=k.label * 20, algorithm=long) for k in full.kernels)
    text = render(replace(full, kernels=kernels))
    assert "2.00 ms" in text
    assert text.count("…") == len(kernels) + full.won


def test_a_run_without_kernels_says_so_in_place_of_an_empty_table(full: Report) -> None:
    text = render(replace(full, kernels=()), color=False)
    assert "no kernels were tuned" in text
    assert "speedup" not in text and "all kernels" not in text


def test_an_untimed_program_and_an_unchecked_one_say_so(full: Report) -> None:
    assert "whole program: not timed" in render(replace(full, whole=None))
    assert "not checked against the oracle" in render(replace(full, relative_error=None))


def test_a_program_that_is_slower_with_what_was_taken_back_is_said_to_be_left_to_xla(
    full: Report,
) -> None:
    assert full.whole is not None
    slower = replace(full.whole, speedup=0.8, speedup_low=0.7, speedup_high=0.9)
    lost = replace(full, whole=slower, kernels=tuple(k for k in full.kernels if not k.won))
    said = " ".join(render(lost, color=False).split())
    assert "slower, 0.80x (95 % interval 0.70 to 0.90); XLA keeps all of it" in said
    assert "XLA keeps all of it" not in render(replace(full, whole=slower))


def test_the_error_of_the_whole_program_stands_beside_that_of_the_default(full: Report) -> None:
    text = render(full, color=False)
    assert "error 1.2e-06 relative RMS against the oracle (default 9e-07)" in text


def test_an_error_against_the_default_alone_says_so(full: Report) -> None:
    text = render(replace(full, default_relative_error=None), color=False)
    assert "error 1.2e-06 relative RMS against the default" in text


UNCLEAR = "no difference proven, the 95 % interval"


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((1.5, 1.4, 1.6), "1.50x (95 % interval 1.40 to 1.60)"),
        ((0.9, 0.8, 0.95), "slower, 0.90x (95 % interval 0.80 to 0.95)"),
        ((1.02, 0.97, 1.08), f"{UNCLEAR} 0.97 to 1.08 includes 1 (median 1.02x)"),
        ((1.02, 1.0, 1.08), f"{UNCLEAR} 1.00 to 1.08 includes 1 (median 1.02x)"),
        ((1.3, 0.0, float("inf")), f"{UNCLEAR} 0.00 to unknown includes 1 (median 1.30x)"),
    ],
    ids=["faster", "slower", "noise", "edge", "few pairs"],
)
def test_a_speedup_inside_the_noise_is_no_headline(
    interval: tuple[float, float, float], text: str
) -> None:
    assert ratio_text(*interval) == text


def test_the_report_says_when_the_whole_program_is_not_proven_faster(full: Report) -> None:
    assert full.whole is not None
    unclear = replace(full, whole=replace(full.whole, speedup_low=0.95))
    assert "tuned 1.00 ms: no difference proven" in render(unclear, color=False)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (2.5, "2.50 s"),
        (12.34, "12.3 s"),
        (0.0123456, "12.3 ms"),
        (231.4e-6, "231 us"),
        (0.99999e-3, "1.00 ms"),
        (0.99999e-6, "1.00 us"),
        (12.3e-9, "12.3 ns"),
    ],
)
def test_a_time_has_three_digits_in_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


TYPES = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def violations(value: object, schema: dict[str, Any], where: str = "report") -> Iterator[str]:
    """What of a JSON value breaks a schema, of the few words of JSON Schema that ours uses."""
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    wrong_bool = isinstance(value, bool) and "boolean" not in names
    if wrong_bool or not any(isinstance(value, TYPES[name]) for name in names):
        yield f"{where}: not of type {names}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where}: not one of {schema['enum']}"
    elif isinstance(value, int | float) and value < schema.get("minimum", value):
        yield f"{where}: below {schema['minimum']}"
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from violations(item, schema["items"], f"{where}[{place}]")
    elif isinstance(value, dict):
        yield from object_violations(value, schema, where)


def object_violations(value: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    properties, rest = schema.get("properties", {}), schema["additionalProperties"]
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}.{name}: missing"
    for name, item in value.items():
        if name in properties:
            yield from violations(item, properties[name], f"{where}.{name}")
        elif rest is False:
            yield f"{where}.{name}: not in the schema"
        else:
            yield from violations(item, rest, f"{where}.{name}")


def test_an_interval_of_a_side_that_was_timed_twice_says_so() -> None:
    often, twice = (1.0, 1.1, 1.05, 1.02), (9.2, 9.1, 9.1, 9.1)
    said = seldom_text(twice, often)
    assert said == ", the default timed twice: the interval has the spread of the other side alone"
    assert "the tuned program timed twice" in seldom_text(often, twice)
    assert seldom_text(often, often) == seldom_text(twice[:2], often[:2]) == ""

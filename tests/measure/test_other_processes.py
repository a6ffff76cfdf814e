"""How busy other processes kept the machine, on accounts that we write."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from hlotune.codegen.runtime.thread_pool import processors
from hlotune.measure.machine.other_processes import Others, Seen, busy_ticks, own_ticks, seen
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import load_text, render
from hlotune.tuning_logs.report import report, to_json
from tests.support.sessions import run, two
from tests.tuning_logs.test_report import SCHEMA, violations

STAT = """\
cpu  900 0 90 500 7 0 0 0 0 0
cpu0 100 2 30 400 50 6 7 80 9 9
cpu1 10 20 30 40 50 60 70 80 90 90
cpu10 5000 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def process(number: int, parent: int, ticks: Sequence[int], name: str = "python") -> str:
    """A line of /proc/NUMBER/stat."""
    times = " ".join(map(str, ticks))
    return f"{number} ({name}) S {parent} 1 1 0 -1 4194560 1 2 3 4 {times} 20 0 1 0 99"


def others(*looks: Seen | None, processors: int = 2) -> Others:
    waiting = iter(looks)
    return Others(processors=processors, look=lambda: next(waiting))


def test_all_that_processes_took_of_a_processor_counts_and_nothing_else() -> None:
    assert busy_ticks(STAT, [0]) == 100 + 2 + 30 + 6 + 7
    assert busy_ticks(STAT, [0, 1]) == 145 + 190


def test_what_a_process_began_is_its_own_with_children_that_have_ended() -> None:
    lines = [
        process(10, 1, (1000, 1000, 1000, 1000)),
        process(12, 11, (8, 0, 0, 0)),
        process(11, 10, (1, 2, 30, 40)),
        process(13, 12, (100, 0, 0, 200)),
        process(20, 10, (5000, 0, 0, 0)),
    ]
    assert own_ticks(lines, 11) == 73 + 8 + 300


def test_a_name_of_a_process_may_be_anything() -> None:
    lines = [process(5, 1, (1, 0, 0, 0), name="a) S 7 (b"), process(6, 5, (2, 0, 0, 0), ") (")]
    assert own_ticks(lines, 5) == 3


def test_others_took_what_is_not_our_own_of_all_processors() -> None:
    watch = others(Seen(100.0, 1000.0, 10.0), Seen(110.0, 1016.0, 18.0))
    assert watch.share() == pytest.approx((16 - 8) / 20)


@pytest.mark.parametrize(("busy_s", "share"), [(1000.0, 0.0), (1050.0, 1.0)])
def test_rounded_ticks_are_no_share_below_none_or_above_all(busy_s: float, share: float) -> None:
    assert others(Seen(100.0, 1000.0, 10.0), Seen(110.0, busy_s, 10.5)).share() == share


@pytest.mark.parametrize("looks", [(None, None), (None, Seen(1.0, 1.0, 0.0))])
def test_where_the_system_does_not_tell_there_is_no_share(looks: tuple[Seen | None, ...]) -> None:
    assert others(*looks).share() is None


def test_an_account_is_read_as_linux_writes_it(tmp_path: Path) -> None:
    processor = processors()[0]
    stat = f"cpu 1 1 1 1\ncpu{processor} 200 0 100 7 7 0 0 0 0 0\n"
    (tmp_path / "stat").write_text(stat, encoding="utf-8")
    (tmp_path / "self").mkdir()
    own = tmp_path / str(os.getpid())
    own.mkdir()
    (own / "stat").write_text(process(os.getpid(), 1, (50, 50, 0, 0)), encoding="utf-8")
    (tmp_path / "999999").mkdir()  # has ended
    found = seen(tmp_path)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert found is not None
    assert (found.busy_s, found.own_s) == (300 * tick_s, 100 * tick_s)


@pytest.mark.parametrize("stat", [None, "cpu0 a b c d e f g h\n"])
def test_a_system_with_no_such_account_tells_nothing(tmp_path: Path, stat: str | None) -> None:
    if stat is not None:
        (tmp_path / "stat").write_text(f"{stat}cpu{processors()[0]} x\n", encoding="utf-8")
    assert seen(tmp_path) is None


def test_on_this_machine_what_this_process_does_is_no_others() -> None:
    found = seen()
    if found is None:
        pytest.skip("this system has no /proc/stat")
    assert 0 < found.own_s <= found.busy_s


def test_the_report_says_how_busy_other_processes_kept_the_machine(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        result = run(database, two(), others_share=0.48)
        found = report(database, result.run)
    assert result.others_share == found.others_share == 0.48
    line = "other processes took 48% of the processors during this run; times were taken beside"
    assert line in render(found, color=False)
    assert list(violations(json.loads(to_json(found)), SCHEMA)) == []


def test_of_a_quiet_machine_the_line_says_no_more_than_the_share() -> None:
    assert load_text(0.004) == "other processes took 0% of the processors during this run"


def test_where_nobody_knows_there_is_no_line(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        found = report(database, run(database, two()).run)
    assert found.others_share is None
    assert "other processes" not in render(found, color=False)

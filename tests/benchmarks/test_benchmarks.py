"""The benchmarks' own arithmetic and texts; nothing is timed here."""

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import curves, operators, page, results, searchers
from benchmarks.curves import Lengths, race_of
from benchmarks.results import Table
from benchmarks.searching import operator
from hlotune.codegen.built import Built
from hlotune.costmodel.pretrained import untrained
from hlotune.hlo.kernel import Kernel
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.timing.comparison import Comparison, Ratio
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.budget.promises import YOUNG
from hlotune.tuning_logs.database import Database
from tests.support.recorded import PROPERTIES
from tests.support.tree import ROOT


@pytest.mark.parametrize(
    ("case", "weights", "names"),
    [
        ("C6", "arguments", ["C6"]),
        ("C6", "constants", ["C6_frozen"]),
        ("C6", "both", ["C6", "C6_frozen"]),
        ("C6_frozen", "both", ["C6_frozen"]),
        ("C6_weight_gradient", "both", ["C6_weight_gradient"]),
        ("C6_weight_gradient", "constants", []),
    ],
)
def test_weights_are_chosen_for_all_cases_that_do_not_say(
    case: str, weights: str, names: list[str]
) -> None:
    assert operators.spelled(case, weights) == names


def line(won: bool, speedup: float) -> operators.Line:
    timings = tuple(
        operators.Timing(
            cache=cache,
            default_s=speedup * 1e-3,
            tuned_s=1e-3,
            speedup=speedup,
            low=speedup,
            high=speedup,
            alone=operators.Alone(0.5e-3, Ratio(0.97, 0.95, 0.99)),
            first=speedup / 2,
        )
        for cache in operators.MODES
    )
    return operators.Line(
        case="C6",
        kernel="ab" * 16,
        label="conv",
        flops=10**8,
        won=won,
        trials=200,
        known_trials=0,
        failures=0,
        tuning_s=12.3,
        reason="",
        element="f32",
        peak_flop_per_s=2e11,
        timings=timings,
    )


def tabled(*lines: operators.Line, element: str = "f32") -> Table:
    return operators.table(lines, {element: 2e11}, "mine", "--weights constants")


def test_an_operator_that_kept_xla_counts_as_one_and_not_won() -> None:
    table = tabled(line(True, 4.0), line(False, 1.0))
    assert table.rows[0][4:6] == ["4.00", "4.00 to 4.00"]
    assert table.rows[0][7:12] == ["100.0", "50%", "0.5", "97% (95 to 99)", "2.00"]
    assert table.rows[2][4:7] == ["1.00", "-", "-"]
    assert table.rows[2][-1] == "kept xla, not won"
    assert "won 1 of 2 kernels" in table.notes[0]
    assert "geometric mean of the ratios, cache model: 2.00" in table.notes


def test_an_operator_whose_interval_has_1_inside_is_won_and_not_proven() -> None:
    won = line(True, 1.05)
    model, warm = won.timings
    table = tabled(replace(won, timings=(model, replace(warm, low=0.98))), line(False, 1.0))
    place = list(table.columns).index("proven")
    assert [row[place] for row in table.rows] == ["faster", "nothing", "-", "-"]
    assert "won 1 of 2 kernels" in table.notes[0]
    assert "proven faster, cache model: 1 of 2" in table.notes
    assert "proven faster, cache warm: 0 of 2" in table.notes


def test_an_operator_of_a_type_without_a_peak_has_no_share_of_one() -> None:
    table = tabled(line(True, 4.0), element="bf16")
    assert table.rows[0][8] == "-"


def test_it_is_counted_where_the_first_candidate_is_not_behind_the_default() -> None:
    table = tabled(line(True, 4.0), line(True, 2.0), line(False, 1.0))
    (first,) = [x for x in table.notes if "first candidate" in x and "cache model" in x]
    assert first.endswith("cache model: 2 of 3 (67%)")


def test_a_first_candidate_that_failed_has_no_ratio() -> None:
    default = Measurement(samples_s=(1.0,) * 9, clock="kernel", cache="warm", numerics="strict")
    failed = Comparison(default, (Failure("build", "too large"),))
    assert operators.first_speedup(failed) == 0
    twice = replace(default, samples_s=(0.5,) * 9)
    assert operators.first_speedup(Comparison(default, (twice,))) == 2


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (Ratio(1.5, 1.4, 1.6), "faster"),
        (Ratio(1.5, 0.9, 1.6), "nothing"),
        (Ratio(0.8, 0.7, 0.9), "slower"),
    ],
)
def test_a_speedup_of_a_model_says_what_it_proves(ratio: Ratio, word: str) -> None:
    assert results.proven(ratio) == word


def curve(*times_s: float) -> curves.Curve:
    return np.minimum.accumulate(np.array(times_s))


def test_a_race_is_decided_after_equal_trials() -> None:
    found = race_of("C6", 0, curve(4, 2), curve(8, 6, 3, 2, 1), trials=2)
    assert found.ratio == 3.0
    assert found.random_trials == 4


def test_a_random_search_that_gives_up_never_arrives() -> None:
    lengths = Lengths(trials=2, patience=4)
    lost = race_of("C6", 0, curve(4, 2), curve(8, 6, 5, 4), trials=2)
    won = race_of("C6", 1, curve(4, 2), curve(2, 2), trials=2)
    assert lost.random_trials is None and won.random_trials == 1
    (row,) = curves.table([lost, lost, won], lengths).rows
    assert row[-2:] == ["> 4", "2"]


def test_a_race_in_which_nothing_worked_is_no_race() -> None:
    with pytest.raises(ValueError, match="expected candidates of C6 that work, got none"):
        race_of("C6", 0, curve(1, 1), curve(np.inf, np.inf), trials=2)


@dataclass
class FakeDevice(CompilesNothing):
    """Builds nothing, and times a schedule by the length of its text; counts what it is asked."""

    schedules: list[Schedule] = field(default_factory=list)
    interrupt_at: int = -1
    numerics: Numerics = "standard"
    """That every candidate needs."""

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [Failure("build", "")] * len(candidates)

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        if 0 <= self.interrupt_at <= len(self.schedules):
            raise KeyboardInterrupt
        self.schedules += [c.schedule for c, _ in objects]
        times = [len(c.schedule.to_json()) * 1e-6 for c, _ in objects]
        pairs = zip(objects, times, strict=True)
        return [
            Trial(c, Measurement(samples_s=(t,), numerics=self.numerics)) for (c, _), t in pairs
        ]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "search.db") as opened:
        yield opened


def arena(database: Database, device: FakeDevice) -> curves.Arena:
    target, lengths = TARGETS["x86-64"], Lengths(trials=70, patience=80)
    return curves.Arena(database, device, device, target, PROPERTIES, lengths)


def test_a_race_is_run_in_turns_and_without_the_heuristic(
    database: Database,
) -> None:
    device = FakeDevice()
    of = operator("C11", TARGETS["x86-64"])
    race = arena(database, device).race(of, seed=3)
    assert len(race.annealing_s) == 70 and 70 <= len(race.random_s) <= 80
    assert len(set(device.schedules[: 2 * YOUNG])) > YOUNG
    assert of.task.space.schedule(of.task.space.heuristic()) not in device.schedules
    assert DEFAULT not in device.schedules


def test_a_complete_race_is_not_run_again_but_a_broken_one_is(database: Database) -> None:
    of = operator("C11", TARGETS["x86-64"])
    with pytest.raises(KeyboardInterrupt):
        arena(database, FakeDevice(interrupt_at=64)).race(of, seed=3)
    device = FakeDevice()
    first = arena(database, device).race(of, seed=3)
    count = len(device.schedules)
    assert count >= 140
    assert arena(database, device).race(of, seed=3) == first
    assert len(device.schedules) == count


def test_a_race_is_run_again_where_another_model_is_shipped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, short = operator("C11", TARGETS["x86-64"]), Lengths(trials=16, patience=16)
    for digest, requests in (("one", 32), ("one", 0), ("another", 32)):
        begun = dataclasses.replace(untrained("random", ""), digest=digest)
        monkeypatch.setattr(curves, "start", lambda name, begun=begun: begun)
        device = FakeDevice()
        dataclasses.replace(arena(database, device), lengths=short).race(of, seed=3)
        assert len(device.schedules) == requests


@pytest.mark.parametrize("numerics", ["standard", "fast"])
def test_a_race_takes_what_its_numerics_allow(database: Database, numerics: Numerics) -> None:
    of, races = operator("C11", TARGETS["x86-64"]), arena(database, FakeDevice(numerics="fast"))
    with dataclasses.replace(races, numerics=numerics)._tuner(of, "random", 3) as tuner:
        step = tuner.step(4)
    assert step and np.isfinite(step.best_s) == (numerics == "fast")


@pytest.mark.parametrize("numerics", ["strict", "fast"])
def test_winners_are_timed_under_the_numerics_of_their_search(
    monkeypatch: pytest.MonkeyPatch, numerics: Numerics
) -> None:
    class Asked(Exception):
        pass

    def runner(target: CpuTarget, given: Numerics) -> None:
        raise Asked(given)

    monkeypatch.setattr(operators, "ProcessRunner", runner)
    kernel, target = operator("C11", host_target()).task.kernel, host_target()
    with pytest.raises(Asked, match=numerics):
        operators.timings(kernel, DEFAULT, target, "f32", numerics)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("operators", "operators.db*"),
        ("search", "search.db*"),
    ],
)
def test_what_is_to_be_measured_now_begins_without_records(name: str, files: str) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = text.partition(f"\nbench-{name}: setup\n")[2]
    assert recipe.startswith(f"\trm -f build/{files}\n")


def operator_commands() -> list[str]:
    """What `make bench-operators` gives to each of its runs, in one line."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    recipe = text.partition("\nbench-operators: setup\n")[2].partition("\n\n")[0]
    runs = [one.partition("-m benchmarks.operators ")[2] for one in recipe.splitlines()]
    return [" ".join(run.split()) for run in runs if run]


def test_each_table_of_operators_is_made_by_make_as_the_page_says() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in page.pages(ROOT))
    names = [run.split()[1] for run in operator_commands()]
    assert names == ["operators", "algorithms", "products", "types"]
    assert set(names) <= set(page.names(text))
    for run in operator_commands():
        typed = run.removesuffix(" --trials $(TRIALS)")
        assert f"`{typed}`" in " ".join(text.split())


def test_a_table_of_operators_says_its_name_and_the_options_that_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    direct, *_ = operator_commands()
    typed = shlex.split(direct.replace("$(TRIALS)", "96"))
    monkeypatch.setattr(sys, "argv", ["operators", *typed])
    options = operators.parsed()
    assert options.cases == [f"C{n}_frozen" for n in range(1, 13)]
    flags = operators.typed(options)
    assert flags == "--weights constants --numerics strict --cache warm --trials 96 --seed 0"
    table = operators.table([line(True, 4.0)], {}, options.name, flags)
    assert table.name == "operators"
    assert table.notes[-1] == f"options: `{flags}`"


def test_what_failed_so_far_is_null_in_json() -> None:
    assert curves.as_json(curve(np.inf, 2, 3)) == (None, 2.0, 2.0)


def of_searcher(name: str, *best_s: float) -> searchers.Search:
    return searchers.Search(case="C6", searcher=name, seed=0, best_s=best_s)


def test_searchers_are_held_against_the_best_that_any_of_them_found() -> None:
    quick = of_searcher("quick", *[2.0] * 15, *[1.0] * 17)
    slow = of_searcher("slow", *[4.0] * 31, 2.0)
    table = searchers.table([quick, slow])
    assert table.columns == ["searcher", ">searches", ">16", ">32", ">near after", ">never near"]
    assert table.rows == [
        ["quick", "1", "1.000", "1.000", "16", "0"],
        ["slow", "1", "0.250", "0.500", "-", "1"],
    ]


def test_a_search_on_the_simulated_device_is_the_same_each_time() -> None:
    of = operator("C11", searchers.TARGET)
    first, second = (searchers.search(of, "random", 3, 20) for _ in range(2))
    assert first == second
    assert len(first.best_s) == 20
    assert list(first.best_s) == sorted(first.best_s, reverse=True)

"""Commands that read records: a won kernel, a kept default and a failure."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.deploy import bench as benching
from hlotune.deploy.artifact import load_artifact
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine import other_processes
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing import peaks
from hlotune.measure.trial import Candidate, Measurement, Trial
from hlotune.schedules.algorithms.joined_space import space_of as every_space_of
from hlotune.schedules.algorithms.table import algorithm_of
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.cpu_contraction.space import space_of
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.target import Properties, Target
from hlotune.tuning_logs import kept_peaks
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.decisions import TOGETHER, decision
from tests.support.mlp_records import PROGRAM, parsed, recorded, said
from tests.support.recorded import PROGRAM as ANOTHER
from tests.support.recorded import PROPERTIES
from tests.support.winograd_cases import windowed


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("records"))


def test_show_prints_text_decision_and_fastest_schedule(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    text = said(capsys, "show", key[:6], "--steps", "--db", path)
    assert "stablehlo.dot_general" in text
    assert "tuned: 2.00x" in text and "fastest: 100 us" in text
    assert "before any step" in text and "Split(" in text


def test_show_has_the_machine_code_in_text(capsys: pytest.CaptureFixture[str], path: str) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    text = said(capsys, "show", key[:6], "--llvm", "--asm", "--db", path)
    assert "define i32 @kernel(ptr" in text
    assert ".globl\tkernel" in text
    data = parsed(capsys, "show", key[:6], "--llvm", "--db", path)
    assert data["assembly"] is None and data["llvm"].count("@kernel") == 1


def test_show_names_the_features_of_a_schedule_of_the_space(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    kernel = sites(load(PROGRAM))[0].kernel
    space = space_of(compute_of(graph_of(kernel)), host_target())
    schedule = space.schedule(space.heuristic())
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain())
        trial = Trial(Candidate(kernel, schedule), Measurement(samples_s=(1e-4,)))
        database.add(run, kernel, [trial], batch=0)
    data = parsed(capsys, "show", kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert list(data["features"]) == list(NAMES)
    assert data["space_size"] == space.size
    text = said(capsys, "show", kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert "register_share" in text


def test_show_names_the_features_of_an_algorithm_for_fast_numerics_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    case = windowed(size=(14, 14), channels=16, features=32)
    space = every_space_of(case.compute, host_target(), "fast")
    schedules = (space.schedule(c) for c in space.firsts())
    schedule = next(s for s in schedules if algorithm_of(s.algorithm).numerics == "fast")
    measured = Measurement(samples_s=(1e-4,), numerics="fast")
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), numerics="fast")
        trial = Trial(Candidate(case.kernel, schedule), measured)
        database.add(run, case.kernel, [trial], batch=0)
    data = parsed(capsys, "show", case.kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert list(data["features"]) == list(NAMES)


def test_show_refuses_features_of_a_schedule_that_the_space_has_not(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    assert run_command(["show", key, "--features", "--db", path]) == 2
    assert "expected a schedule of today's space" in capsys.readouterr().err


def test_show_has_no_details_where_nothing_of_ours_ran(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    kept = sites(load(PROGRAM))[1].kernel.key
    assert "fastest: nothing ran here" in said(capsys, "show", kept, "--db", path)
    assert run_command(["show", kept, "--asm", "--db", path]) == 1
    assert "expected a schedule of ours that ran on this machine" in capsys.readouterr().err


def test_show_of_an_unknown_kernel_finds_nothing(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    assert run_command(["show", "zzzz", "--db", path]) == 1
    assert "expected a recorded kernel, got 'zzzz'" in capsys.readouterr().err


def test_explain_gives_a_reason_for_every_site(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    lines = parsed(capsys, "explain", PROGRAM, "--db", path)["sites"]
    assert len(lines) == len(sites(load(PROGRAM)))
    assert lines[1]["status"] == "kept default" and lines[1]["speedup"] == 0.9
    assert lines[1]["algorithm"] is None
    assert "margin" in lines[1]["reason"]
    assert {x["reason"] for x in lines[2:] if x["status"] == "no record"} == {"never tuned"}
    small = [x["reason"] for x in lines if x["status"] == "too small"]
    assert small and all(r.startswith("left as it is: expected a kernel of at l") for r in small)


def test_explain_names_other_flags_of_xla_where_they_are_the_reason(
    capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    lines = parsed(capsys, "explain", PROGRAM, "--db", path)["sites"]
    tried = [x["reason"] for x in lines if x["status"] != "too small"]
    tried = [reason for reason in tried if reason != "never tuned"]
    assert tried and all("XLA_FLAGS='', none with '--xla_cpu_enable_fast" in r for r in tried)
    assert run_command(["apply", PROGRAM, "-o", "none", "--db", path]) == 1


def test_bench_without_records_finds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    assert run_command(["bench", PROGRAM, "--db", str(tmp_path / "empty.db")]) == 1
    assert "`tune run` makes them" in capsys.readouterr().err


def test_report_is_found_by_program_and_prints_what_was_won(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    data = parsed(capsys, "report", "model", "--db", path)
    assert data["won"] == 1 and len(data["kernels"]) == 2
    assert "1 of 2" in said(capsys, "report", data["run"][:8], "--db", path)


def test_kernels_lists_work_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    lines = parsed(capsys, "kernels", PROGRAM)["kernels"]
    bare = next(x for x in lines if x["label"] == "dot 64x784x512")
    assert all(x["sketches"] > 0 for x in lines if "not worth a call" not in str(x["left_to_xla"]))
    tiny = next(x for x in lines if x["label"] == "bias 64x10")
    assert "not worth a call; the default compiler fuses it" in tiny["left_to_xla"]
    assert bare["flops"] == 2 * 64 * 784 * 512
    assert bare["bytes"] == 4 * (64 * 784 + 784 * 512 + 64 * 512)
    assert "51.38 MFLOP" in said(capsys, "kernels", PROGRAM)


def test_kernels_says_that_a_default_is_wrong(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path / "wrong.db")
    with Database(tmp_path / "wrong.db") as database:
        run = database.query("select id from runs")[0]["id"]
        wrong = Measurement(samples_s=(2e-4,), error=37.0)
        kernel = sites(load(PROGRAM))[0].kernel
        database.add(run, kernel, [Trial(Candidate(kernel, DEFAULT), wrong)], batch=0)
    text = said(capsys, "kernels", PROGRAM, "--database", str(tmp_path / "wrong.db"))
    told = "XLA's own result does not agree with the reference: it is off by 37 times its bound"
    assert "".join(text.split()).count("".join(told.split())) == 1
    lines = parsed(capsys, "kernels", PROGRAM, "--database", str(tmp_path / "wrong.db"))["kernels"]
    assert max(x["known"]["default_error"] for x in lines) == 37.0


@pytest.mark.parametrize(("others_share", "measured"), [(0.0, 1), (0.5, 2), (None, 1)])
def test_kernels_measures_peaks_once_a_day_unless_the_machine_was_busy(
    others_share: float | None,
    measured: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(kept_peaks, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(other_processes.Others, "share", lambda _: others_share)
    times: list[Target] = []

    def measure(target: Target) -> Properties:
        times.append(target)
        return PROPERTIES

    monkeypatch.setattr(peaks, "host_properties", measure)
    first, again = (parsed(capsys, "kernels", PROGRAM)["kernels"] for _ in range(2))
    assert len(times) == measured
    assert first == again
    assert any(line["roofline_s"] == line["flops"] / 2e11 for line in again)


def test_kernels_says_what_a_database_knows_of_each(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    lines = parsed(capsys, "kernels", PROGRAM, "--database", path)["kernels"]
    known = {(x["known"]["trials"], x["known"]["decision"], x["known"]["speedup"]) for x in lines}
    assert known == {(2, "tuned", 2.0), (0, "kept xla", 1.0), (0, None, 1.0)}
    text = said(capsys, "kernels", PROGRAM, "--database", path)
    assert "tuned 2.00x" in text and "kept xla" in text
    assert "known" not in said(capsys, "kernels", PROGRAM)


def put_together(file: str) -> None:
    """Records that the program's first kernel was tuned together with others in it, and that a
    later run of another program kept its default."""
    program, here = load(PROGRAM), (host_target(), toolchain())
    kernel = sites(program)[0].kernel
    with Database(file) as database:
        won = decision(database, kernel.key, **conditions(*here)).final
        assert won is not None
        run = database.start_run(program, *here)
        database.record_final(run, kernel, replace(won, outcome=TOGETHER))
        slower = replace(won.paired, speedup=0.5, low=0.45, high=0.55)
        run = database.start_run(ANOTHER, *here)
        database.record_final(run, kernel, replace(won, outcome="kept default", paired=slower))


@pytest.mark.parametrize("is_together", [False, True], ids=["tuned alone", "tuned together"])
def test_a_benchmark_that_finds_a_kernel_wrong_takes_its_record_back(
    capsys: pytest.CaptureFixture[str],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_together: bool,
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    key = sites(load(PROGRAM))[0].kernel.key
    if is_together:
        put_together(copy)

    def wrong(*_: object, **__: object) -> None:
        raise WrongResult("expected 1, got 2; to blame: dot0; tune it again", kernels=(key,))

    monkeypatch.setattr(benching, "compared", wrong)
    assert run_command(["bench", PROGRAM, "--db", copy]) == 2
    said_last = capsys.readouterr().err
    assert f"tune it again; {key[:8]} keep the default from now on" in said_last
    (first, *_) = parsed(capsys, "explain", PROGRAM, "--db", copy)["sites"]
    assert first["reason"] == "kept default: wrong in the program"
    shown = parsed(capsys, "show", key, "--db", copy)
    assert shown["fastest_of_ours"] is None and "xla" in shown["fastest"]["schedule"]


def test_apply_writes_a_program_that_can_be_loaded(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "mlp.hlotune")
    written = parsed(capsys, "apply", PROGRAM, "-o", file, "--db", path)
    assert (written["sites"], len(written["kernels"])) == (1, 1)
    assert written["bytes"] == Path(file).stat().st_size
    assert all(a["wrong"] is None for a in written["accuracy"])
    assert load_artifact(file).target == written["target"]


def test_apply_without_anything_tuned_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    file = tmp_path / "mlp.hlotune"
    arguments = ["apply", PROGRAM, "-o", str(file), "--db", str(tmp_path / "empty.db")]
    assert run_command(arguments) == 1
    assert "found none; `tune explain` says why" in capsys.readouterr().err
    assert not file.exists()

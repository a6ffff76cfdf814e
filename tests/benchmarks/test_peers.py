"""The benchmark against peers: workers and turns with a made-up peer, environments, ours."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases import source
from benchmarks.jax_operations import inputs_of
from benchmarks.models.contestants import PEERS_OF_MODELS
from benchmarks.operations import Array, Product
from benchmarks.peers import environments, rounds
from benchmarks.peers.contestants import FOLDER, OLDEST, OURS, REQUIRED, Contestant, contestants
from benchmarks.peers.ours import Ours
from benchmarks.peers.process import Refusal, Worker, environment
from benchmarks.peers.records import record
from benchmarks.peers.rounds import Effort, Entry, Turns, measured
from benchmarks.peers.worker import Session, Unsupported, answered, rest, timed
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from tests.support.fake_peer import FakePeer
from tests.support.tree import ROOT

TOY = Product(m=6, k=5, n=4)
QUICK = Effort(rounds=4, warm_s=1e-3, sample_s=2e-3, prepare_limit_s=20, turn_limit_s=20)


def fake(manner: str, name: str = "") -> Contestant:
    forms = {"arguments": ("arguments",), "constants": ("constants",)}
    return Contestant(
        name=name or manner,
        module="tests.support.fake_peer",
        forms=forms,  # type: ignore[arg-type]
        options=(manner,),
    )


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    """Workers append themselves, and their logs stand in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.close()


def start(apart: list[Worker], *manners: str) -> list[Worker]:
    apart += (found := [Worker(fake(manner), threads=2) for manner in manners])
    return found


def test_all_forms_of_all_contestants_are_timed_in_the_same_number_of_turns(
    apart: list[Worker],
) -> None:
    outcomes = measured("toy", TOY, start(apart, "right", "slow"), QUICK)
    assert list(outcomes) == [f"{n} {f}" for n in ("right", "slow") for f in fake("").forms]
    right, slow = outcomes["right arguments"], outcomes["slow constants"]
    assert isinstance(right, Turns) and isinstance(slow, Turns)
    assert len(right.call_s) == len(slow.call_s) == 4
    assert min(slow.call_s) >= 2e-3 > min(right.call_s) >= 5e-4


def test_whoever_fails_is_named_with_the_reason_and_the_others_go_on(apart: list[Worker]) -> None:
    manners = ("right", "wrong", "crashes", "unsupported", "broken", "absent")
    outcomes = measured("toy", TOY, start(apart, *manners), QUICK)
    assert isinstance(outcomes["right arguments"], Turns)
    kinds = {m: refused(outcomes[f"{m} arguments"]) for m in manners[1:]}
    assert kinds["wrong"] == Refusal(
        "wrong_result", "differs from right arguments by 0.5 of the largest"
    )
    assert outcomes["crashes constants"] == Refusal("crash", "crashes ended: out of luck")
    assert kinds["crashes"].message == "the process that had prepared it has ended"
    assert kinds["unsupported"] == Refusal("unsupported", "no such operation")
    assert kinds["broken"] == Refusal("error", "ValueError: no memory")
    assert kinds["absent"].kind == "missing"
    assert kinds["absent"].message.endswith("no module named after this library")


def refused(outcome: rounds.Outcome) -> Refusal:
    assert isinstance(outcome, Refusal)
    return outcome


def test_a_turn_that_the_host_disturbed_is_taken_again(
    apart: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SPINNING_S", 0.0)
    (worker,) = start(apart, "right")
    entry = Entry(worker, "arguments")
    rounds.prepared("toy", TOY, [entry], QUICK)
    answers = iter([True, False, True, True])  # before and after a turn, twice
    assert not isinstance(rounds.steady_turn(entry, QUICK, lambda: next(answers)), Refusal)
    assert not list(answers)


def test_threads_that_still_look_for_work_after_a_turn_disturb_nothing(
    apart: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Entry] = []

    def turn(entry: Entry, _: Effort) -> Refusal:
        turns.append(entry)
        return Refusal("error", "")

    monkeypatch.setattr(rounds, "turn", turn)
    answers = iter([True, False, False, True])  # before it, and three times after
    (worker,) = start(apart, "right")
    rounds.steady_turn(Entry(worker, "arguments"), QUICK, lambda: next(answers))
    assert len(turns) == 1 and not list(answers)


def test_a_worker_that_hangs_is_stopped_and_started_again(apart: list[Worker]) -> None:
    (worker,) = start(apart, "hangs")
    entry = Entry(worker, "arguments")
    assert not rounds.prepared("toy", TOY, [entry], QUICK)
    answer = rounds.turn(entry, replace(QUICK, turn_limit_s=0.3))
    assert answer == Refusal("timeout", "no answer within 0.3 s")
    assert worker.version == "1.0"


def test_a_contestant_without_its_environment_is_missing(apart: list[Worker]) -> None:
    absent = replace(fake("right"), environment=FOLDER / "nowhere")
    with Worker(absent, threads=2) as worker:
        assert isinstance(worker.version, Refusal)
        assert worker.version.message.endswith("build/peers/nowhere")


def test_constants_are_left_out_where_an_operation_has_no_weights(apart: list[Worker]) -> None:
    workers = start(apart, "right")
    batched = Product(batch=(3,), m=6, k=5, n=4)
    assert [e.form for e in rounds.entries(workers, batched)] == ["arguments"]


def test_every_library_is_told_the_threads() -> None:
    told = environment(3)
    assert {told[n] for n in ("PEER_THREADS", "OMP_NUM_THREADS", "TVM_NUM_THREADS")} == {"3"}


def test_what_a_library_prints_is_no_answer() -> None:
    requests = io.StringIO(json.dumps({"do": "drop"}) + "\n")
    answers = io.StringIO()
    answered(Session(FakePeer()), requests, answers)
    assert [json.loads(x) for x in answers.getvalue().splitlines()] == [{"version": "1.0"}, {}]


def test_a_sample_is_filled_with_calls_after_those_that_warm() -> None:
    calls = FakePeer()
    samples = timed(calls.call, warm_s=2e-3, sample_s=3e-3)
    assert sum(samples) >= 3e-3 and (len(samples) >= 3 or samples[0] >= 3e-3)
    assert calls.calls >= len(samples) + 1


def test_a_worker_answers_when_its_threads_sleep() -> None:
    awake = iter([True, True, False])
    rest(lambda: next(awake))
    assert not list(awake)


def test_a_library_that_never_sleeps_is_not_waited_for() -> None:
    start = time.perf_counter()
    rest(lambda: True, limit_s=5e-3)
    assert time.perf_counter() - start < 1


def test_a_thread_that_looks_for_work_is_seen_and_one_that_sleeps_is_not() -> None:
    code = """if True:
        import threading, time
        from benchmarks.peers.worker import others_run, rest
        stop, start = threading.Event(), time.monotonic()
        def spin():
            while not stop.is_set():
                pass
        spinning = threading.Thread(target=spin)
        spinning.start()
        seen = any(others_run() for _ in range(50))
        stop.set()
        spinning.join()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        rest(limit_s=60)
        print(seen, time.monotonic() - start < 60)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_call_longer_than_a_sample_is_made_once() -> None:
    assert len(timed(FakePeer("slow").call, warm_s=0.0, sample_s=1e-3)) == 1


@pytest.mark.parametrize("found", [np.ones((2, 2)), np.full((2, 3), np.nan)])
def test_other_shapes_and_numbers_that_are_none_are_wrong(found: Array) -> None:
    refusals = rounds.wrong(TOY, {"xla": np.ones((2, 3)), "peer": found})
    assert refusals["peer"].kind == "wrong_result"


def test_whole_numbers_must_agree_to_the_last() -> None:
    results = {"xla": np.array([[1000]]), "peer": np.array([[1001]])}
    assert rounds.wrong(replace(TOY, element="int8"), results)
    assert not rounds.wrong(replace(TOY, element="bf16"), results)


CASE = "GMM2"


def test_ours_is_what_the_records_make_of_the_case(tmp_path: Path) -> None:
    weights, x = inputs_of(operation := Product(m=32, k=512, n=512))
    library = Ours(recorded(tmp_path / "a.db", CASE, Schedule("direct")))
    made = library.prepare(CASE, operation, "arguments", weights, x)
    np.testing.assert_allclose(made.result(), x @ weights, rtol=1e-4, atol=1e-4)
    with pytest.raises(Unsupported, match="left to XLA: "):
        library.prepare(CASE, operation, "constants", weights, x)
    with pytest.raises(Unsupported, match="left to XLA: nothing was tuned"):
        Ours(tmp_path / "b.db").prepare(CASE, operation, "arguments", weights, x)


def test_a_case_is_tuned_kept_or_unknown(tmp_path: Path) -> None:
    target = host_target()
    tuned = recorded(tmp_path / "a.db", CASE, Schedule("direct"))
    kept = recorded(tmp_path / "b.db", CASE, DEFAULT)
    assert record(CASE, "arguments", tuned, target).status == "tuned"
    assert record(CASE, "arguments", kept, target).status == "kept xla"
    assert record(CASE, "constants", kept, target).status == "not tuned"
    assert record(CASE, "arguments", tmp_path / "c.db", target).status == "not tuned"
    assert record(CASE, "arguments", tuned, target, "warm").status == "not tuned"


def recorded(path: Path, case: str, schedule: Schedule) -> Path:
    speedup = 1.0 if schedule == DEFAULT else 2.0
    paired = Paired(
        default_s=(speedup,) * 7, tuned_s=(1.0,) * 7, speedup=speedup, low=speedup, high=speedup
    )
    final = Final(
        schedule=schedule,
        numerics="standard",
        paired=paired,
        outcome="kept default" if schedule == DEFAULT else "tuned",
        margin=speedup - 1,
    )
    with Database(path) as database:
        run = database.start_run(None, host_target(), toolchain())
        database.record_final(run, sites(load(source(case)))[0].kernel, final)
    return path


def test_a_worker_that_pauses_stands_still_while_nothing_is_asked(apart: list[Worker]) -> None:
    worker = Worker(fake("right"), threads=2, pauses=True)
    apart.append(worker)
    assert worker.ask({"do": "drop"}, 20.0) == {}
    assert worker._process is not None
    stat = Path(f"/proc/{worker._process.number}/stat")
    until = time.monotonic() + 5
    while (state := stat.read_text().rpartition(")")[2].split()[0]) != "T":
        assert time.monotonic() < until, f"it is in state {state}"
        time.sleep(0.01)
    assert worker.ask({"do": "drop"}, 20.0) == {}


def test_every_contestant_has_its_module_and_every_environment_its_versions() -> None:
    found = contestants(Path("a.db"))
    for contestant in found:
        assert (ROOT / f"{contestant.module.replace('.', '/')}.py").exists()
    made = {FOLDER / name for name in environments.names()}
    of_models = {peer.contestant.environment for peer in PEERS_OF_MODELS}
    assert {c.environment for c in found if c.environment} | of_models == {*made, OLDEST}
    assert set(REQUIRED) <= {c.name for c in found}
    assert next(c for c in found if c.name == OURS).command[-2:] == ["a.db", "model"]


def test_an_environment_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ERROR: no toy==1' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(environments, "python_for", lambda _: str(python))
    (tmp_path / "toy.txt").write_text("toy==1\n")
    assert environments.set_up("toy") == "not installed: ERROR: no toy==1"
    monkeypatch.setattr(environments, "python_for", lambda _: "")
    (tmp_path / "toy.txt").write_text("# python 3.99\ntoy==1\n")
    said = "not installed: it needs Python 3.99, which is not here"
    assert environments.set_up("toy") == said
    assert not (FOLDER / "toy" / environments.STAMP).exists()


def test_an_environment_of_these_versions_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (name, *_) = environments.names()
    stamp = FOLDER / name / environments.STAMP
    stamp.parent.mkdir(parents=True)
    stamp.write_text((environments.REQUIREMENTS / f"{name}.txt").read_text())
    assert environments.set_up(name) == ""


def test_operations_need_no_jax() -> None:
    """Their file is read where JAX is not."""
    code = "import sys, benchmarks.peers.plain; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr

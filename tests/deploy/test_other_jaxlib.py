"""Records of another jaxlib are not taken for granted; what to do with them is said."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hlotune
from hlotune.cli.main import run_command
from hlotune.codegen.built import Built
from hlotune.deploy.apply import applied, apply
from hlotune.deploy.other_jaxlib import decided_here
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.tuning_logs.database import Conditions, Database, conditions
from hlotune.tuning_logs.decisions import Decision, decision, elsewhere
from hlotune.tuning_logs.toolchains import with_other_jaxlib
from tests.support.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded
from tests.support.recorded import KERNEL, measured, start
from tests.support.recorded import final as recorded_final
from tests.support.tree import ROOT

OLD = "0.9.1"
HERE: Conditions = conditions(host_target(), toolchain())
WHAT_TO_DO = (
    f"tuned with jaxlib {OLD}, and this is {toolchain().jaxlib}: run `tune run` again, which "
    "starts from what is known, or use --any-jaxlib (any_jaxlib=True), which compares its kernels "
    "with the default of this jaxlib first"
)


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


@pytest.fixture
def old(program: Program, tmp_path: Path) -> Path:
    """A database in which another jaxlib proved both layers faster."""
    found = first_sites(program)
    records = {found[name]: final(DIRECT) for name in ("dot0", "dot1")}
    return recorded(tmp_path / "old.db", records, jaxlib=OLD)


class TestDecisions:
    """What records of other toolchains say of a kernel."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> object:
        with Database(tmp_path / "a.db") as opened:
            yield opened

    def record(self, database: Database, jaxlib: str, speedup: float, number: int = 1) -> None:
        tools = replace(toolchain(), jaxlib=jaxlib)
        run = start(database, target=host_target(), toolchain=tools)
        database.record_final(run, KERNEL, recorded_final(speedup, number))

    def test_a_kernel_that_another_jaxlib_tuned_keeps_the_default_and_says_so(
        self, database: Database
    ) -> None:
        self.record(database, OLD, 2.0)
        found = decision(database, KERNEL.key, **HERE)
        assert (found.schedule, found.final, found.jaxlib) == (DEFAULT, None, OLD)
        assert found.reason == WHAT_TO_DO

    def test_the_newest_jaxlib_that_won_counts_elsewhere(self, database: Database) -> None:
        for number, version in enumerate(("0.9.10", "0.9.2", "0.8.5"), 1):
            self.record(database, version, 2.0, number)
        self.record(database, "0.9.11", 0.9, 7)
        found = elsewhere(database, KERNEL.key, "standard", HERE)
        assert found is not None
        assert found.jaxlib == "0.9.10"
        assert found.final == recorded_final(2.0, 1)

    def test_a_comparison_with_this_jaxlib_goes_first(self, database: Database) -> None:
        self.record(database, OLD, 2.0)
        self.record(database, toolchain().jaxlib, 0.9)
        found = decision(database, KERNEL.key, **HERE)
        assert found.final == recorded_final(0.9)
        assert found.jaxlib is None

    def test_trials_that_did_not_win_there_are_what_the_next_run_starts_from(
        self, database: Database
    ) -> None:
        tools = replace(toolchain(), jaxlib=OLD)
        run = start(database, target=host_target(), toolchain=tools)
        database.add(run, KERNEL, [measured(1e-3)], batch=0)
        assert decision(database, KERNEL.key, **HERE).reason == (
            f"1 trials with jaxlib {OLD}, none with {toolchain().jaxlib} as here: "
            "`tune run` again starts from them"
        )

    def test_other_machine_code_is_not_that_of_another_jaxlib(self, database: Database) -> None:
        tools = replace(toolchain(), jaxlib=OLD, codegen="other")
        run = start(database, target=host_target(), toolchain=tools)
        database.record_final(run, KERNEL, recorded_final(2.0))
        assert with_other_jaxlib(database, KERNEL.key, HERE) == ()
        assert decision(database, KERNEL.key, **HERE).reason == "never tuned"


class FakeReferee:
    """Says of each kernel the time of its default and of the candidate, or why it failed."""

    def __init__(self, times: dict[str, tuple[float, float] | Failure]) -> None:
        self.times = times
        self.asked: list[str] = []

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        limit_s: float,
    ) -> Comparison:
        self.asked.append(kernel.key)
        answer = self.times[kernel.key]
        times = (1e-3, 1e-3) if isinstance(answer, Failure) else answer
        default, tuned = (Measurement(samples_s=(t,) * pairs, numerics="strict") for t in times)
        return Comparison(default, (answer if isinstance(answer, Failure) else tuned,))


def judged(
    program: Program, times: dict[str, tuple[float, float] | Failure], schedule: Schedule = DIRECT
) -> tuple[dict[str, Decision], list[str]]:
    """Decisions by the name of the site, where old records have `dot0` and `dot1`; and the names
    of those that were compared.
    """
    found = first_sites(program)
    there = {
        found[name].kernel.key: Decision(
            schedule=schedule, reason="tuned", final=final(schedule), jaxlib=OLD
        )
        for name in times
    }
    here = {s.kernel.key: Decision(schedule=DEFAULT, reason="never tuned") for s in found.values()}
    referee = FakeReferee({found[name].kernel.key: t for name, t in times.items()})
    sites = list(found.values())
    decided = decided_here(sites, here, there, host_target(), referee, lambda text: None)
    names = {s.kernel.key: n for n, s in found.items()}
    return {names[k]: d for k, d in decided.items()}, [names[k] for k in referee.asked]


def test_what_is_faster_here_too_is_used_and_the_rest_keeps_the_default(program: Program) -> None:
    decided, asked = judged(program, {"dot0": (2e-3, 1e-3), "dot1": (1e-3, 1.1e-3)})
    assert asked == ["dot0", "dot1"]
    assert (decided["dot0"].schedule, decided["dot0"].reason) == (
        DIRECT, "tuned with jaxlib 0.9.1, and faster here too: 2.00x (2.00 to 2.00)",
    )  # fmt: skip
    assert (decided["dot1"].schedule, decided["dot1"].reason) == (
        DEFAULT,
        "kept default: tuned with jaxlib 0.9.1, but here it reached 0.91x (0.91 to 0.91)",
    )
    assert decided["dot0"].final is not None and decided["dot0"].final.won
    assert decided["dot1"].final is not None and not decided["dot1"].final.won


def test_an_alternative_is_compared_where_the_first_choice_is_not_faster_here(
    program: Program,
) -> None:
    decided, asked = judged(program, {"dot0": (1e-3, 2e-3), "dot0.bare": (1e-3, 0.5e-3)})
    assert asked == ["dot0", "dot0.bare"]
    assert decided["dot0.bare"].schedule == DIRECT
    decided, asked = judged(program, {"dot0": (2e-3, 1e-3), "dot0.bare": (1e-3, 0.5e-3)})
    assert len(asked) == 1


def test_what_fails_here_keeps_the_default_and_says_why(program: Program) -> None:
    wrong = Failure("wrong_result", "3 of 8 elements")
    decided, _ = judged(program, {"dot0": wrong})
    assert decided["dot0"].schedule == DEFAULT
    assert decided["dot0"].reason == (
        "kept default: tuned with jaxlib 0.9.1, failed here: wrong_result (3 of 8 elements)"
    )


def test_a_schedule_that_makes_no_code_keeps_the_default_and_says_why(program: Program) -> None:
    broken = Schedule("direct", (Split("nothing", "i0", (2, 2)),))
    decided, asked = judged(program, {"dot0": (2e-3, 1e-3)}, broken)
    assert asked == []
    assert decided["dot0"].reason.startswith("kept default: tuned with jaxlib 0.9.1, has no code: ")


def test_a_default_that_cannot_be_timed_is_kept(program: Program) -> None:
    class Refusing(FakeReferee):
        def compare(self, *_: object, **__: object) -> Comparison:
            raise ProgramError("expected XLA to compile it")

    site = first_sites(program)["dot0"]
    there = Decision(schedule=DIRECT, reason="tuned", final=final(DIRECT), jaxlib=OLD)
    here = {site.kernel.key: Decision(schedule=DEFAULT, reason="never tuned")}
    decided = decided_here(
        [site], here, {site.kernel.key: there}, host_target(), Refusing({}), lambda text: None
    )
    assert decided[site.kernel.key].reason == (
        "kept default: tuned with jaxlib 0.9.1, failed here: device (expected XLA to compile it)"
    )


def test_apply_replaces_nothing_and_warns(
    program: Program, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned = apply(program, database=old)
    assert tuned.replacements == ()
    reasons = {e.site.name: (e.status, e.reason) for e in tuned.explain()}
    assert reasons["dot0"] == reasons["dot1"] == ("no record", WHAT_TO_DO)
    assert caplog.record_tuples == [
        ("hlotune.apply", logging.WARNING, f"{program.name}: {WHAT_TO_DO}")
    ]


def test_apply_says_nothing_of_other_jaxlibs_where_records_of_this_one_are_used(
    program: Program, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded(old, {first_sites(program)["dot0"]: final(DIRECT)})
    tuned = apply(program, database=old)
    assert [s.name for s in tuned.sites] == ["dot0"]
    assert caplog.record_tuples == []


def test_apply_compares_them_where_it_is_told_to_and_the_program_stays_right(
    program: Program, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[str]()
    tuned = applied(program, database=old, any_jaxlib=True, tell=told.append)
    assert [text.split(": ")[1] for text in told] == [
        "comparing with the default of this jaxlib"
    ] * 2
    reasons = {e.site.name: e.reason for e in tuned.explain()}
    for name in ("dot0", "dot1"):
        assert "tuned with jaxlib 0.9.1, " in reasons[name]
        assert ("and faster here too" in reasons[name]) == (name in {s.name for s in tuned.sites})
    x = normal(8, 16)
    want, got = mlp(PARAMETERS, x), tuned(PARAMETERS, x)
    np.testing.assert_allclose(got["logits"], want["logits"], rtol=1e-5, atol=1e-5)
    assert caplog.record_tuples == []


def test_jit_runs_what_xla_makes_and_warns(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    fast = hlotune.jit(mlp, database=old)
    fast(PARAMETERS, normal(8, 16))
    said = fast.explain(PARAMETERS, normal(8, 16))
    assert ("no record", WHAT_TO_DO) in {(e.status, e.reason) for e in said}
    assert caplog.record_tuples == [("hlotune.jit", logging.WARNING, f"XLA runs mlp: {WHAT_TO_DO}")]


def test_jit_compares_them_where_it_is_told_to(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[bool]()

    def noted(*_: object, any_jaxlib: bool, **__: object) -> object:
        asked.append(any_jaxlib)
        raise ProgramError("that is all")

    monkeypatch.setattr("hlotune.deploy.jit.applied", noted)
    for fast in (hlotune.jit(mlp, database=old, any_jaxlib=True), hlotune.jit(mlp, database=old)):
        with pytest.raises(ProgramError):
            fast(PARAMETERS, normal(8, 16))
    assert asked == [True, False]


class TestCommands:
    @pytest.fixture
    def database(self, tmp_path: Path) -> Path:
        program = load("examples/mlp.py:model")
        records = {site: final(DIRECT) for site in first_sites(program).values()}
        return recorded(tmp_path / "old.db", records, jaxlib=OLD)

    @pytest.mark.parametrize("command", ["apply", "bench"])
    def test_it_says_what_to_do(
        self, command: str, database: Path, tmp_path: Path,
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.chdir(ROOT)
        out = ["-o", str(tmp_path / "mlp.hlotune")] if command == "apply" else []
        arguments = [command, "examples/mlp.py:model", "--database", str(database), *out]
        assert run_command(arguments) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tune: program model: expected ")
        assert line.endswith(f"; {WHAT_TO_DO}")

    def test_apply_writes_what_is_faster_here_too(
        self, database: Path, tmp_path: Path,
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.chdir(ROOT)
        seen = list[bool]()
        file = tmp_path / "mlp.hlotune"

        def faster(found: object, here: object, there: dict[str, Decision], *_: object) -> object:
            seen.append(True)
            return {**here, **there}  # type: ignore[dict-item]

        monkeypatch.setattr("hlotune.deploy.apply.decided_here", faster)
        program = "examples/mlp.py:model"
        arguments = ["apply", program, "--database", str(database), "-o", str(file)]
        assert run_command([*arguments, "--any-jaxlib"]) == 0, capsys.readouterr().err
        assert seen == [True] and file.exists()

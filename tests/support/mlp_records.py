"""Records of the example program made by hand, and commands run on them in this process."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlotune.cli.main import run_command
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.tuning_logs.database import Database
from tests.support.applied import code_of, final

PROGRAM = "examples/mlp.py:model"
SPLIT = Schedule("direct", (Split("out", "i0", (4,)),))


def recorded(folder: Path) -> str:
    """A database with one run: the first kernel won, the second kept XLA."""
    file = folder / "tuning.db"
    program = load(PROGRAM)
    won, kept = (site.kernel for site in sites(program)[:2])
    stage = compute_of(graph_of(won)).stages[0].name
    split = Schedule("direct", (Split(stage, "i0", (4,)),))
    with Database(file) as database:
        run = database.start_run(program, host_target(), toolchain(), sites=sites(program))
        outcomes: list[tuple[Schedule, Outcome]] = [
            (DEFAULT, Measurement(samples_s=(2e-4,))),
            (split, Measurement(samples_s=(1e-4,))),
            (SPLIT, Failure("build", "no such stage")),
        ]
        trials = [Trial(Candidate(won, s), o) for s, o in outcomes]
        database.add(run, won, trials, batch=0)
        faster = final(split, default_s=2e-4, tuned_s=1e-4)
        database.record_final(run, won, replace(faster, code=code_of(won, split)))
        slower = final(split, default_s=0.9e-4, tuned_s=1e-4)
        database.record_final(run, kept, replace(slower, outcome="kept default"))
        database.finish_run(run)
    return str(file)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it has to succeed."""
    code = run_command(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(said(capsys, *arguments, "--json"))

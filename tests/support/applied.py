"""Programs with records that were made by hand, for what applies them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hlotune.deploy.replacement import built_here
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired

DIRECT = Schedule("direct")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def mlp(parameters: dict[str, Any], x: Any) -> dict[str, Any]:
    hidden = jax.nn.relu(x @ parameters["in"] + parameters["bias"])
    return {"logits": hidden @ parameters["out"]}


PARAMETERS = {"in": normal(16, 32), "bias": normal(32), "out": normal(32, 10)}


def final(schedule: Schedule, default_s: float = 2e-5, tuned_s: float = 1e-5) -> Final:
    speedup = default_s / tuned_s
    paired = Paired(
        default_s=(default_s,) * 7,
        tuned_s=(tuned_s,) * 7,
        speedup=speedup,
        low=speedup,
        high=speedup,
    )
    won = schedule != DEFAULT
    return Final(
        schedule=schedule,
        numerics="standard",
        paired=paired,
        outcome="tuned" if won else "kept default",
        margin=speedup - 1,
    )


def vouched(kernel: Kernel, schedule: Schedule = DIRECT, **times_s: float) -> Final:
    """A final that names the code which today's makes: none is verified anew, in a process."""
    return replace(final(schedule, **times_s), code=code_of(kernel, schedule))


def recorded(
    path: Path,
    finals: dict[Site, Final],
    jaxlib: str | None = None,
    target: Target | None = None,
) -> Path:
    """A database of finals that name the code which today's code generation makes.

    `jaxlib` is the version that they were made with, by default the one that is installed;
    `target` is this machine's CPU where none is given.
    """
    tools = replace(toolchain(), jaxlib=jaxlib) if jaxlib else toolchain()
    with Database(path) as database:
        run = database.start_run(None, target or host_target(), tools)
        for site, one in finals.items():
            code = code_of(site.kernel, one.schedule, target)
            database.record_final(run, site.kernel, replace(one, code=one.code or code))
    return path


def code_of(kernel: Kernel, schedule: Schedule, target: Target | None = None) -> str | None:
    """The hash of the machine code that today's code generation makes; None where it makes none."""
    try:
        return built_here(kernel, schedule, target or host_target()).key
    except HlotuneError:
        return None


def first_sites(program: Program) -> dict[str, Site]:
    return {s.name: s for s in sites(program)}

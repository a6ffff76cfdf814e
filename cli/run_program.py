"""What `tune run` does with one program: loads, tunes and reports it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hlotune.cli.loading import load_program
from hlotune.cli.outcome import end
from hlotune.cli.printing import print_notes, say
from hlotune.measure.machine.suspend_clock import Pulse, beating
from hlotune.schedules.numerics import Numerics

if TYPE_CHECKING:
    from hlotune.hlo.frontends.program import Program
    from hlotune.schedules.targets.target import Target
    from hlotune.search.result import TuneResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of one `tune run`."""

    program: str
    budget_s: float | None
    whole_s: float | None = None
    """The budget of the command, where this program has a part of it."""
    trials: int | None
    database: Path
    says_database: bool
    """Whether to say where the records are: nobody named a file."""
    searcher: str
    model: str
    model_file: Path | None
    first: bool
    """Whether the first candidates are taken without a search; then neither limit is given."""
    seed: int
    numerics: Numerics
    target: "Target | None"
    """None is this machine's CPU."""
    devices: int
    """GPUs of the target's kind that measure at the same time."""
    types: Sequence[str]
    """The types of the arguments of a bare function, as in `f32[8,784]`."""
    sizes: Sequence[str]
    """The sizes of symbolic dimensions, as in `batch=8`."""
    loops: Sequence[str]
    """How often loops run, as in `while0=50`."""
    is_module: bool = False
    """Whether it is one of several modules, to which the same is said of loops."""
    quiet: bool
    events: bool
    json: bool

    @property
    def time_limit_s(self) -> float | None:
        """How long the command may take; None where trials are limited, or nothing is searched."""
        from hlotune.search.budget.limits import DEFAULT_BUDGET_S

        return None if self.first or self.trials else self.budget_s or DEFAULT_BUDGET_S


def run_program(request: Request) -> None:
    """Tunes one program, prints its report, and ends as `end` says."""
    from hlotune.measure.workers.early_start import workers_ahead

    with beating() as pulse, workers_ahead():
        loaded = load_program(
            request.program, request.types, request.sizes, request.loops,
            may_lack_loops=request.is_module,
        )  # fmt: skip
        print_notes(loaded.remarks, file=sys.stderr)
        result = tuned(loaded, request, pulse)
    from hlotune.cli.report import print_report

    if request.says_database:
        say(f"tune: records are in {result.database}", file=sys.stderr)
    print_report(result.database, result.run, json=request.json)
    given = (request.types, request.sizes, request.loops, request.devices)
    end(result, request.budget_s, request.model_file, *given, whole_s=request.whole_s)


def tuned(program: "Program", request: Request, pulse: Pulse) -> "TuneResult":
    """The result of the search, or of the first candidates where those were asked for.

    Its imports, of xgboost and torch among others, come after the program is loaded: an error in
    the program does not wait for them.
    """
    from hlotune.cli.progress import watching
    from hlotune.codegen.runtime.malloc_settings import keep_memory
    from hlotune.search.first import first
    from hlotune.search.tune import tune

    keep_memory()
    with watching(quiet=request.quiet or request.json, events=request.events) as progress:
        if request.first:
            return first(
                program, database=request.database, numerics=request.numerics,
                progress=progress, target=request.target, pulse=pulse,
            )  # fmt: skip
        return tune(
            program, budget_s=request.budget_s, trials=request.trials, searcher=request.searcher,
            model=request.model, model_file=request.model_file, seed=request.seed,
            database=request.database, numerics=request.numerics, progress=progress,
            target=request.target, devices=request.devices, pulse=pulse,
        )  # fmt: skip

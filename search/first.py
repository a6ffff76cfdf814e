"""Takes the first candidates of all kernels, without a search: builds, verifies, compares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hlotune.costmodel.pretrained import Start
from hlotune.deploy.accuracy import require_known_calls
from hlotune.hlo.frontends.program import Program, require_loaded
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.machine.devices import require_shared, target_here
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.suspend_clock import Pulse, beating
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import CacheMode, Candidate, Failure, Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import ModelError, reason_alone
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Target
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.closing import Closing
from hlotune.search.finals.finals import FEWEST_PAIRS, Contender, Object, decided, meetings
from hlotune.search.finals.forms import Compared, CompareForms
from hlotune.search.finals.judged import judged, left_out
from hlotune.search.finals.quick import liked
from hlotune.search.finals.whole_program import WholeProgram
from hlotune.search.progress import Event, Finalising, KernelSkipped, Progress, Started, silent
from hlotune.search.result import KernelResult, TuneResult, with_final
from hlotune.search.tasks import Task, other_forms, task_of, tasks
from hlotune.search.tune import (
    Choices,
    begun_run,
    begun_workers,
    started,
    wait_for_earlier_work,
)
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.open_database import chosen

CANDIDATES = 1
"""So many candidates of each kernel are taken: those that the model likes best."""
WORTH_OTHERS = 0.02
"""The share of the time of all kernels from which on one that keeps its default is tried in smaller
groups: each of these is checked and compared too."""
WHOLE_S = 3.0
"""The seconds for timing the whole program beside the default, and for the oracle."""
FORMS_S = 6.0
"""After so many seconds no further form of the program is tried (`finals/forms.py`)."""
ONE_FORM_FROM_S = 0.15
"""At most one form is tried of a program whose calls take so many seconds."""
ONE_FORM_SHARE = 0.15
"""It may take such a share of what the run took by then, where that is more than `WHOLE_S`."""


def first(
    program: Program,
    *,
    database: Database | str | Path | None = None,
    numerics: Numerics = "standard",
    cache: CacheMode = "model",
    progress: Progress | None = None,
    target: Target | None = None,
    pulse: Pulse | None = None,
) -> TuneResult:
    """Takes the first candidates of all kernels where they are faster than the default.

    They are those that a search begins with: formulas choose one of each algorithm, or of one
    alone that reads less than all others, and the cost model that comes with hlotune one among
    these.  Each is verified as a winner of a search is, and compared with the default in a few
    pairs; what is proven faster is recorded, and `apply` puts it in.  The arguments are those of
    `tune`, and so are the errors.
    """
    require_loaded(program)
    with beating(pulse) as pulse, chosen(database, create=True) as records:
        require_known_calls(program)
        device = target_here(target)
        require_shared(device)
        model, begun = model_of(device)
        left_alone: list[tuple[str, str]] = []
        choices = Choices(
            limits=Limits(trials=CANDIDATES), searcher="annealing", model=model, begun=begun,
            seed=0, numerics=numerics, cache=cache, target=device,
            progress=_noting(left_alone, progress or silent),
        )  # fmt: skip
        return _decided(program, records, choices, pulse, left_alone)


def _decided(
    program: Program,
    records: Database,
    choices: Choices,
    pulse: Pulse,
    left_alone: Sequence[tuple[str, str]],
) -> TuneResult:
    """The result of a run that compares the candidates of all kernels, and then the program.

    `left_alone` has the kernels that are left alone by then, with the reasons.
    """
    turns = Turns(now=pulse.clock_s)
    wait_for_earlier_work(turns)
    known = records.properties(choices.target)
    with begun_workers(choices, turns, known) as (builder, runner):
        places = sites(program)
        found, skipped = tasks(places, choices.target, choices.numerics)
        builder.settle()
        run = begun_run(program, records, choices, known, places, found)
        choices.progress(Started(kernels=len(found), known_trials=0))
        for skip in skipped:
            choices.progress(KernelSkipped(label=skip.label, reason=skip.reason))
        with records.keeping(run, choices.progress):
            kernels = _compared(found, run, records, choices, builder, runner)
            others = _others(found, kernels, choices)
            kernels += _compared(others, run, records, choices, builder, runner)
            result = TuneResult(
                program_name=program.name, database=records.path, run=run, kernels=kernels,
                trials=sum(k.trials for k in kernels), known_trials=0, wall_s=0.0,
                skipped=tuple(left_alone),
            )  # fmt: skip
            return _closed(program, places, result, records, choices, turns, pulse, runner.forget)


def _noting(left_alone: list[tuple[str, str]], progress: Progress) -> Progress:
    """Notes the kernels that are left alone, with the reasons, which stand in the report."""

    def told(event: Event) -> None:
        if isinstance(event, KernelSkipped):
            left_alone.append((event.label, event.reason))
        progress(event)

    return told


def model_of(device: Target) -> tuple[str, Start]:
    """The trees that come with hlotune and their name; a roofline where xgboost, which they need,
    is not installed: what only applies kernels needs it for nothing else.
    """
    try:
        return "trees", started("trees", None, device)
    except ModelError:
        return "roofline", started("roofline", None, device)


def _compared(
    found: Sequence[Task],
    run: str,
    records: Database,
    choices: Choices,
    builder: ProcessBuilder,
    runner: ProcessRunner,
) -> tuple[KernelResult, ...]:
    """The result of each kernel; those of most work are compared first."""
    if not found:
        return ()
    wanted = [_candidates(task, choices) for task in found]
    builts = iter(builder.build([c for those in wanted for c in those]))
    objects = [[(c, next(builts)) for c in those] for those in wanted]
    choices.progress(Finalising(kernels=len(found), interrupted=False))
    with_some = (n for n, those in enumerate(objects) if those)
    order = sorted(with_some, key=lambda n: -found[n].weight * found[n].flops)
    results: dict[int, KernelResult] = {}
    for n in order:
        try:
            results[n] = _verdict(found[n], objects[n], run, records, choices, runner)
        except Exception as error:
            reason = reason_alone(error)
            choices.progress(KernelSkipped(label=found[n].label, reason=reason))
    return tuple(results[n] for n in sorted(results))


def _others(found: Sequence[Task], kernels: Sequence[KernelResult], choices: Choices) -> list[Task]:
    """Other forms of the kernels that keep their defaults: a smaller group of the same operations
    may be faster where the largest is not.
    """
    results = {k.key: k for k in kernels}
    all_s = sum(k.weight * k.default_s for k in kernels)
    losing = [t for t in found if _asks_for_others(results.get(t.kernel.key), all_s)]
    others: list[Task] = []
    for site in other_forms(losing, {t.kernel for t in found}):
        try:
            others.append(task_of(site, choices.target, choices.numerics))
        except Exception as error:
            choices.progress(KernelSkipped(label=site.label, reason=reason_alone(error)))
    return others


def _asks_for_others(result: KernelResult | None, all_s: float) -> bool:
    """Whether a kernel keeps its default and takes enough of all kernels' time for smaller groups
    of its operations to be compared; also where its comparison failed, and its time is not known.
    """
    if result is None or result.schedule is None:
        return True
    return not result.won and result.weight * result.default_s >= WORTH_OTHERS * all_s


def _candidates(task: Task, choices: Choices) -> list[Candidate]:
    """None where choosing them fails, which is told: the other kernels go on."""
    try:
        return liked(task, choices.begun.model, CANDIDATES)
    except Exception as error:
        choices.progress(KernelSkipped(label=task.label, reason=reason_alone(error)))
        return []


def _verdict(
    task: Task,
    objects: Sequence[Object],
    run: str,
    records: Database,
    choices: Choices,
    runner: ProcessRunner,
) -> KernelResult:
    met = list(meetings(task.kernel, objects, runner, FEWEST_PAIRS))
    contenders = [x for x in met if isinstance(x, Contender)]
    result = KernelResult(
        label=task.label, key=task.kernel.key, weight=task.weight, trials=len(objects),
        failures=len(met) - len(contenders), default_s=0.0, best_s=None,
    )  # fmt: skip
    if not contenders:
        failed = [x.outcome for x in met if isinstance(x, Trial)]
        reasons = [f"{x.kind}: {x.message}" for x in failed if isinstance(x, Failure)]
        choices.progress(KernelSkipped(label=task.label, reason="; ".join(reasons)))
        return result
    final = decided(task, contenders)
    records.record_final(run, task.kernel, final)
    return with_final(result, final)


def _closed(
    program: Program,
    places: Sequence[Site],
    result: TuneResult,
    records: Database,
    choices: Choices,
    turns: Turns,
    pulse: Pulse,
    make_room: Callable[[], None],
) -> TuneResult:
    """Compares the whole program, takes back what slows it down, and ends the run."""
    under = conditions(choices.target, toolchain(), choices.cache)
    whole = WholeProgram(
        program, records, choices.numerics, choices.target, choices.cache, turns, make_room
    )
    closing = Closing(
        database=records, run=result.run, numerics=choices.numerics, under=under,
        is_unrolled=bool(program.unrolled), places=places, tell=choices.progress,
        is_long=lambda: _has_one_form(whole),
    )  # fmt: skip
    forms = _forms(whole, turns.clock_s, pulse.start_s)
    verdict = closing.verdict(result, lambda also: whole.compare(WHOLE_S, WHOLE_S, also), forms)
    for event in left_out(result, verdict):
        choices.progress(event)
    timed = replace(
        judged(result, verdict),
        wall_s=turns.clock_s() - pulse.start_s,
        waited_s=turns.waited_s,
        wrong_default=whole.wrong_default(),
    )
    return closing.closed(timed, verdict.whole, choices.progress)


def _has_one_form(whole: WholeProgram) -> bool:
    return whole.ready_in(WHOLE_S).call_s >= ONE_FORM_FROM_S


def _forms(whole: WholeProgram, clock_s: Callable[[], float], start_s: float) -> CompareForms:
    """Compares forms of a program, until they have taken their seconds; the run began at `start_s`
    of the clock.
    """
    begun_s = list[float]()

    def is_faster(
        base: Mapping[str, Final], more: Mapping[str, Final], confidence: float
    ) -> Compared | None:
        begun_s.append(clock_s())
        all_s, most_s = FORMS_S, WHOLE_S
        if _has_one_form(whole):
            all_s = most_s = max(WHOLE_S, ONE_FORM_SHARE * (begun_s[0] - start_s))
        left_s = all_s - (begun_s[-1] - begun_s[0])
        if left_s < 0:
            return None
        return whole.is_faster(base, more, confidence, min(most_s, left_s), WHOLE_S)

    return is_faster

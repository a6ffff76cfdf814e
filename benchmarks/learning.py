"""What a trained model saves: searches on kernels that it has never seen, by trials.

    python -m benchmarks.learning --seeds 3

Annealing on the trees that ship, once for 512 trials, once as a run of 128, which ends in
coordinate descent, and once for a single batch of 64; on trees that start from nothing, alone and
beside a database of other convolutions' trials, as a run would find it; on trees that were trained
on those trials; and distinct legal configs at random.  All leave out the heuristic and the
default compiler: what they find, they found themselves.

All searches are brought to one number of trials before any goes on to the next, so that it can be
left at any time; it goes on where it stopped, from the trials in the database.  Searches on another
shipped model are begun anew.  At the end the champions of all are timed in turns (`settled.py`),
and curves drawn, `build/learning_*.svg`.  The best that a search is held against is that of all of
them, and of the trials that this machine made of the same kernels in other databases (`--also`).
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cases import source
from benchmarks.command import RECORDED, command
from benchmarks.learned import (
    CONTESTANTS,
    EARLIER,
    MILESTONES,
    Contestant,
    Curve,
    Race,
    charts,
    drawn,
    table,
)
from benchmarks.results import FOLDER, conditions, publish
from benchmarks.searching import Operator, blind, kernel_tuner, no_configs, operator
from benchmarks.settled import Referee, chosen_s, curve, last_crowd, settled, shortlist
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.pretrained import start
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import XLA
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.budget.budget import finishing, full_batch, grown
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.spent import Spent
from hlotune.search.experience import Experience
from hlotune.search.learning.transfer import kin, lent, recorded, teach
from hlotune.search.tasks import Task
from hlotune.search.tuner import KernelTuner, Predicted
from hlotune.search.workers import Builder, Runner
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.database import conditions as under_conditions

LESSONS = CONTESTANTS["teacher"].trials


def main() -> None:
    options = parsed()
    target = host_target()
    deadline_s = time.monotonic() + options.seconds
    with ExitStack() as stack:
        database = stack.enter_context(Database(options.database))
        builder = stack.enter_context(ProcessBuilder(target))
        runner = stack.enter_context(ProcessRunner(target))
        properties = runner.properties()
        before = conditions(target, properties)
        track = Track(database, builder, runner, target, properties)
        races = list(drawn(options.cases, range(options.seeds), options.searches))
        for trials in MILESTONES:
            for race in races:
                track.advance(race, min(trials, race.trials), deadline_s)
        also = {case: track.elsewhere(case, options.also) for case in options.cases}
        curves, best_s = in_turns(track, races, runner, also)
        found = table(curves, best_s, sum(map(len, also.values())))
        publish(found, before, [{**asdict(r), "time_s": c.tolist()} for r, c in curves.items()])
        for name, svg in charts(curves, best_s).items():
            (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")


def in_turns(
    track: "Track", races: Sequence[Race], referee: Referee, also: Mapping[str, Sequence[Trial]]
) -> tuple[dict[Race, Curve], dict[str, float]]:
    """The curves of races, and by case the time of the best that any of them found, or that is
    among other trials.
    """
    curves, best_s = dict[Race, Curve](), dict[str, float]()
    for case in dict.fromkeys(race.case for race in races):
        trials = {race: track.trials(race) for race in races if race.case == case}
        schedules = list(dict.fromkeys((*shortlist(trials.values()), *last_crowd(also[case]))))
        print(f"{case}: {len(schedules)} champions in turns", flush=True)
        times = settled(track.kernel(case), schedules, track.builder, referee)
        curves |= {race: curve(of, times) for race, of in trials.items()}
        best_s[case] = chosen_s(schedules, times)
    return curves, best_s


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(case for c in CONTESTANTS.values() for case in c.cases))
    parser.add_argument("--cases", nargs="+", choices=names, metavar="CASE", default=names)
    parser.add_argument(
        "--searches", nargs="+", choices=CONTESTANTS, metavar="SEARCH", default=tuple(CONTESTANTS),
        help="of these kinds alone: " + ", ".join(CONTESTANTS),
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, help="searches of each kind")
    parser.add_argument("--seconds", type=float, default=inf, help="after which no batch starts")
    parser.add_argument("--database", type=Path, default=Path("build/learning.db"))
    parser.add_argument(
        "--also", type=Path, action="append", default=[], metavar="DB",
        help="a database whose trials count for the best ever, too; more than one may be given",
    )  # fmt: skip
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


@dataclass
class Track:
    """Where races are run and recorded."""

    database: Database
    builder: Builder
    runner: Runner
    target: CpuTarget
    properties: Properties
    source: Callable[[str], str] = source
    """The source of a case's program."""
    _operators: dict[str, Operator] = field(default_factory=dict)

    def advance(self, race: Race, trials: int, deadline_s: float = inf) -> None:
        """Goes on until the search has made so many trials, or time is up.

        A search that learns from others waits until they have made as many trials as teach it.
        """
        if time.monotonic() >= deadline_s or len(self.trials(race)) >= trials:
            return
        contestant = CONTESTANTS[race.contestant]
        if (contestant.is_taught or contestant.is_lent) and not self._is_ready(race.seed):
            return
        of = self._operator(race.case)
        tuner, done = self._tuner(race, of), len(self.trials(race))
        while done < trials and time.monotonic() < deadline_s:
            size, ends = batch_after(race, done)
            step = tuner.step(min(size, trials - done), finishing=ends)
            if step is None:
                break
            done += len(step.trials)
            print(f"{race}: {done} trials, best {step.best_s * 1e3:.4g} ms", flush=True)

    def kernel(self, case: str) -> Kernel:
        return self._operator(case).task.kernel

    def trials(self, race: Race) -> list[Trial]:
        """The trials of a race, in their order."""
        found = self.database.query(
            "select * from trials where run = :run order by number", {"run": self._run(race)}
        )
        kernel = self.database.kernel(found[0]["kernel"]) if found else None
        return [rows.trial_of(row, kernel) for row in found] if kernel else []

    def elsewhere(self, case: str, files: Sequence[Path]) -> list[Trial]:
        """What other databases hold of a case, tried on this machine by this version."""
        under = under_conditions(self.target, toolchain())
        found = list[Trial]()
        for file in files:
            with Database(file, create=False) as database:
                trials = database.trials(self.kernel(case).key, numerics="standard", **under)
            found += [t for t in trials if t.candidate.schedule.algorithm != XLA]
        return found

    def _tuner(self, race: Race, of: Operator) -> KernelTuner:
        """Where the search stands, with what its model was taught."""
        kernel, contestant = of.task.kernel, CONTESTANTS[race.contestant]
        run = self._run(race) or self._started(race, of)
        model = self._model(contestant, race.seed)
        experience, first = Experience(model), no_configs(of.task)
        if contestant.is_lent:
            first = self._lent(of.task, experience, race.seed)

        def record(
            trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
        ) -> None:
            self.database.add(run, kernel, trials, batch=batch, state=state, predicted=predicted)

        search = blind(of.task, contestant.searcher, model, race.seed, first)
        tuner = kernel_tuner(of.task, search, model, self.builder, self.runner, record, experience)
        if checkpoint := self.database.checkpoint(run, kernel.key):
            tuner.resume(*checkpoint)
        tuner.know(self.trials(race))
        experience.learn()
        return tuner

    def _model(self, contestant: Contestant, seed: int) -> CostModel:
        if contestant.is_shipped:
            return start(contestant.model).model
        model = MODELS[contestant.model]()
        if contestant.is_taught:
            with TemporaryDirectory() as folder:
                file = Path(folder) / "taught.npz"
                self._taught(contestant.model, seed).save(file)
                model.load(file)
        return model

    def _taught(self, name: str, seed: int) -> CostModel:
        """What `tune model train` makes of a database that holds the teachers' trials alone."""
        experience = Experience(MODELS[name]("offline"))
        self._teach(experience, seed)
        experience.learn()
        return experience.model

    def _lent(self, task: Task, experience: Experience, seed: int) -> Configs:
        """What a run does with a database of the teachers' trials: the best schedules of the
        nearest, in the space of this kernel, and trials that teach its model.
        """
        under = under_conditions(self.target, toolchain())
        with TemporaryDirectory() as folder, Database(Path(folder) / "lessons.db") as lessons:
            for case in EARLIER:
                run = lessons.start_run(None, self.target, toolchain())
                trials = self.trials(Race(case, "teacher", seed))[:LESSONS]
                lessons.add(run, self.kernel(case), trials, batch=0)
            of = kin(recorded(lessons, under), task.kernel, task.compute)
            teach(experience, lessons, of, self.target, under)
            return lent(lessons, of, task.space, under)

    def _is_ready(self, seed: int) -> bool:
        """Whether all teachers have made the trials that they are asked for."""
        return all(len(self.trials(Race(c, "teacher", seed))) >= LESSONS for c in EARLIER)

    def _teach(self, experience: Experience, seed: int) -> None:
        """Lets a model see the first trials of its teachers."""
        for group, case in enumerate(EARLIER, 1):
            trials = self.trials(Race(case, "teacher", seed))[:LESSONS]
            of = self._operator(case)
            search = blind(of.task, "random", experience.model, seed)
            known = kernel_tuner(
                of.task, search, experience.model, self.builder, self.runner,
                experience=experience, group=group,
            )  # fmt: skip
            known.know(trials)

    @property
    def _place(self) -> dict[str, object]:
        return {
            "target": self.target.fingerprint,
            "toolchain": toolchain().key,
            "threads": self.target.threads,
        }

    def _operator(self, case: str) -> Operator:
        if case not in self._operators:
            self._operators[case] = operator(case, self.target, self.source)
        return self._operators[case]

    def _started(self, race: Race, of: Operator) -> str:
        return self.database.start_run(
            of.program,
            self.target,
            toolchain(),
            sites=[of.site],
            properties=self.properties,
            options=options_of(race),
            seed=race.seed,
        )

    def _run(self, race: Race) -> str | None:
        """The run of this race on this machine, finished or not."""
        found = self.database.query(
            """select id from runs where target = :target and toolchain = :toolchain
            and threads = :threads and options = :options and seed = :seed
            order by started limit 1""",
            {"options": rows.dumps(options_of(race)), "seed": race.seed, **self._place},
        )
        return str(found[0]["id"]) if found else None


def batch_after(race: Race, done: int) -> tuple[int, bool]:
    """Trials of the batch after so many, and whether coordinate descent proposes them."""
    contestant = CONTESTANTS[race.contestant]
    if contestant.at_once:
        return contestant.trials, False
    if not contestant.finishes:
        return grown(done), False
    spent, limits = [Spent(0, done, 0.0, inf)], Limits(trials=race.trials)
    return full_batch(0, spent, limits), finishing(0, spent, limits, 0.0)


def options_of(race: Race) -> dict[str, object]:
    """What tells the runs of races apart, but for the seed; of a shipped model, its file too."""
    contestant = CONTESTANTS[race.contestant]
    found: dict[str, object] = {"learning": race.contestant, "case": race.case}
    found |= asdict(contestant)
    if contestant.is_shipped:
        found["digest"] = start(contestant.model).digest
    return found


if __name__ == "__main__":
    command(main, RECORDED)

"""Whether defaults of kernels are timed as a user's process runs them.

    python -m benchmarks.defaults --programs examples/resnet18.py:frozen examples/mlp.py:model

Each kernel's default is timed in the worker of the tuner and in a process that runs nothing else,
in turns, by the clock `call` and in the cache mode `warm`, which is what a loop of calls is.  The
worker also times it in the mode `model`, and the sum of these over one run of the program is held
against the whole default program, in a process that runs nothing else.  Of samples in two modes the
fast one counts, on either side.  What was timed beside other processes is timed again.  A kernel
that is complete under `build/defaults` is not timed again.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.command import RECORDED, command
from benchmarks.results import Table, conditions, milliseconds, publish
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.other_processes import Others
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.modes import fast_time_s, modes
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.atomic_files import whole
from hlotune.search.tasks import Task, tasks
from hlotune.tuning_logs.render import QUIET

PROGRAMS = ("examples/resnet18.py:frozen", "examples/mlp.py:model")
FOLDER = Path("build/defaults")
ROUNDS = 5
TRIES = 3
"""What was timed while other processes were at work is timed again, so often in all."""
NEAR = 0.10
"""How far the worker's time may be from the other process's, and a sum above its program."""

Samples = Sequence[float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kernel; samples in seconds, a list for each round."""

    program: str
    label: str
    calls: float
    worker: Sequence[Samples]
    fresh: Sequence[Samples]
    inside: Sequence[Samples]
    """The samples in the worker, with constants cold as inside the program."""
    others_share: float | None
    """The share of the processors that other processes took; None where the system does not tell.
    """

    @property
    def ratios(self) -> list[float]:
        """Time in the worker over that of the fresh process, by round."""
        pairs = zip(self.worker, self.fresh, strict=True)
        return [fast_time_s(worker) / fast_time_s(fresh) for worker, fresh in pairs]

    @property
    def ratio(self) -> float:
        """The ratio of the medians of the rounds."""
        return middle_s(self.worker) / middle_s(self.fresh)

    @property
    def spread(self) -> float:
        """Time of the slowest round of the fresh process over that of the fastest."""
        times_s = [fast_time_s(samples) for samples in self.fresh]
        return max(times_s) / min(times_s)

    @property
    def near(self) -> int:
        """The number of rounds in which the worker is near the fresh process."""
        return sum(abs(r - 1) <= NEAR for r in self.ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The default of a whole program, in processes of its own."""

    program: str
    rounds: Sequence[Samples]
    others_share: float | None


def main() -> None:
    options = parsed()
    with ProcessRunner(host_target(), clock="call", cache="warm") as runner:
        before = conditions(host_target(), runner.properties())
        lines = [x for program in options.programs for x in program_lines(runner, program)]
        wholes = [whole_program(program) for program in options.programs]
    publish(table(lines), before, [asdict(x) for x in lines])
    publish(sums_table(lines, wholes), before, [asdict(x) for x in wholes])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="+", metavar="PROGRAM", default=PROGRAMS)
    return parser.parse_args()


def program_lines(runner: ProcessRunner, program: str) -> list[Line]:
    found, _ = tasks(sites(load(program)), host_target())
    return [
        Line(**kept(f"{named(program)}.{t.kernel.key[:12]}", partial(timed, runner, program, t)))
        for t in found
    ]


def timed(runner: ProcessRunner, program: str, task: Task) -> dict[str, Any]:
    line = quiet(lambda: rounds(runner, program, task), lambda x: x.others_share)
    print(" ".join(cells(line)), file=sys.stderr)
    return asdict(line)


def quiet(measure: Callable[[], T], others_share: Callable[[T], float | None]) -> T:
    """What was measured with the fewest other processes; the first that had hardly any."""
    tried: list[T] = []
    for _ in range(TRIES):
        tried.append(measure())
        if (others_share(tried[-1]) or 0.0) <= QUIET:
            break
    return min(tried, key=lambda x: others_share(x) or 0.0)


def rounds(runner: ProcessRunner, program: str, task: Task) -> Line:
    worker, fresh, inside, others = [], [], [], Others()
    for _ in range(ROUNDS):
        worker.append(runner.default(task.kernel, cache="warm").samples_s)
        fresh.append(fresh_kernel(task.kernel))
        inside.append(runner.default(task.kernel, cache="model").samples_s)
    return Line(
        program=program, label=task.label, calls=task.weight,
        worker=worker, fresh=fresh, inside=inside, others_share=others.share(),
    )  # fmt: skip


def whole_program(program: str) -> Whole:
    def once() -> Whole:
        others = Others()
        times = [in_a_fresh_process({"program": program})[0] for _ in range(ROUNDS)]
        return Whole(program=program, rounds=times, others_share=others.share())

    found = kept(named(program), lambda: asdict(quiet(once, lambda x: x.others_share)))
    return Whole(**found)


def kept(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured before under a name, or is now."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        measured = measure()
        with whole(path) as part:
            part.write_text(json.dumps(measured), encoding="utf-8")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def named(program: str) -> str:
    return Path(program.replace(":", ".")).name


def fresh_kernel(kernel: Kernel) -> Samples:
    """The time of the faster form, as the worker takes it."""
    return min(in_a_fresh_process({"kernel": kernel.text}), key=fast_time_s)


def in_a_fresh_process(asked: dict[str, str]) -> list[Samples]:
    """Samples of each form.  Raises CalledProcessError where the process fails."""
    line = [sys.executable, "-m", "benchmarks.fresh_default"]
    with alone():
        said = subprocess.run(
            line, input=json.dumps(asked), stdout=subprocess.PIPE, check=True, text=True
        )
    found: list[Samples] = json.loads(said.stdout)
    return found


def table(lines: Sequence[Line]) -> Table:
    middle = [x for x in lines if abs(x.ratio - 1) <= NEAR]
    every = [x for x in lines if x.near == len(x.ratios)]
    rounds = sum(len(x.ratios) for x in lines)
    return Table(
        name="defaults",
        columns=[
            "kernel", ">calls", ">worker ms", ">fresh process ms", ">worker over fresh",
            ">by round", f">within {NEAR:.0%}", ">fresh, slowest over fastest",
            ">rounds in two modes", ">fresh", ">others took",
        ],
        rows=[cells(x) for x in lines],
        notes=[
            f"clock `call`, cache `warm`; medians of {ROUNDS} rounds, of the fast mode where a "
            "round's samples lie in two",
            "slowest over fastest: of the rounds of the fresh process, by which processes differ "
            "that run the same text",
            f"medians of the rounds within {NEAR:.0%}: {len(middle)} of {len(lines)} kernels; all "
            f"rounds within it: {len(every)}, {sum(x.near for x in lines)} of {rounds} rounds",
        ],
    )  # fmt: skip


def cells(x: Line) -> list[str]:
    return [
        x.label,
        f"{x.calls:g}",
        milliseconds(middle_s(x.worker)),
        milliseconds(middle_s(x.fresh)),
        f"{x.ratio:.2f}",
        f"{min(x.ratios):.2f} to {max(x.ratios):.2f}",
        f"{x.near} of {len(x.ratios)}",
        f"{x.spread:.2f}",
        str(two_moded(x.worker)),
        str(two_moded(x.fresh)),
        share_text(x.others_share),
    ]


def share_text(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def middle_s(rounds: Sequence[Samples]) -> float:
    return median(fast_time_s(samples) for samples in rounds)


def two_moded(rounds: Sequence[Samples]) -> int:
    return sum(modes(samples) is not None for samples in rounds)


def sums_table(lines: Sequence[Line], wholes: Sequence[Whole]) -> Table:
    return Table(
        name="defaults_sums",
        columns=[
            "program", ">kernels", ">sum ms", ">program ms", ">sum over program", ">by round",
            ">sum of fresh processes ms", ">over program", ">others took",
        ],
        rows=[sum_cells([x for x in lines if x.program == w.program], w) for w in wholes],
        notes=[
            "sum: calls times the default's time in the worker, clock `call`, cache `model`; what "
            "the tuner has no kernel for, such as pooling, is in the program alone",
            "sum of fresh processes: of the kernels in processes of their own, constants warm",
            f"a sum is to be at most {1 + NEAR:.2f} of its program",
        ],
    )  # fmt: skip


def sum_cells(lines: Sequence[Line], of: Whole) -> list[str]:
    sums_s = [sum(x.calls * fast_time_s(x.inside[i]) for x in lines) for i in range(len(of.rounds))]
    programs_s = [fast_time_s(samples) for samples in of.rounds]
    ratios = [a / b for a, b in zip(sums_s, programs_s, strict=True)]
    fresh_s = sum(x.calls * middle_s(x.fresh) for x in lines)
    return [
        of.program,
        str(len(lines)),
        milliseconds(median(sums_s)),
        milliseconds(median(programs_s)),
        f"{median(ratios):.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        milliseconds(fresh_s),
        f"{fresh_s / median(programs_s):.2f}",
        share_text(of.others_share),
    ]


if __name__ == "__main__":
    command(main, RECORDED)

"""Whether training goes as with XLA: the losses of many steps, each from the state of the last.

    python -m benchmarks.models.losses --models mnist_training --seconds 60

A step is tuned as by `python -m benchmarks.models`, whose run is taken where it was made with the
same budget, and gives its state away as there.  Both sides begin from the same weights and see the
same batches: of ten classes, each a random image in much noise.  What came of it is kept as results
of models are, a line a model in a file for each kind of core.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import tracked
from benchmarks.command import command
from benchmarks.models.examples import Example, chosen
from benchmarks.models.peer_ours import ours
from benchmarks.models.tuning import tuned_apart
from benchmarks.results import Table, conditions, publish
from benchmarks.tracked import DIGITS
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import ProgramError

NAME = "losses"
STEPS: Mapping[str, int] = {"mnist_training": 100, "resnet18_training": 20}
CLASSES, SIGNAL = 10, 0.1
"""How many classes there are, and the share of an image that tells which."""
TOLERANCE = 1e-3
"""The largest difference of a loss, as a share of XLA's."""
Batch = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the losses of a model came to."""

    model: str
    conditions: Mapping[str, Any]
    steps: int
    first: float | None = None
    xla_last: float | None = None
    ours_last: float | None = None
    apart: float | None = None
    """The largest difference of a step, as a share of XLA's loss; of this and the losses None is
    what is no number."""
    note: str = ""
    """Why XLA keeps the step; nothing where kernels of ours are in it."""

    @property
    def is_as_with_xla(self) -> bool:
        return self.apart is not None and self.apart <= TOLERANCE


def line_of(
    model: str, under: Mapping[str, Any], xla: Sequence[float], ours: Sequence[float], note: str
) -> Line:
    """The line of a model, of both sides' losses step by step."""
    apart = [abs(o - x) / abs(x) for x, o in zip(xla, ours, strict=True)]
    first, xla_last, ours_last, most = (
        x if isfinite(x) else None
        for x in (xla[0], xla[-1], ours[-1], max(apart) if all(map(isfinite, apart)) else nan)
    )
    return Line(
        model=model, conditions=under, steps=len(xla), first=first, xla_last=xla_last,
        ours_last=ours_last, apart=most, note=note,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(STEPS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model")
    parser.add_argument("--results", type=Path, default=tracked.RESULTS, metavar="FOLDER")
    options = parser.parse_args()
    target = host_target()
    path = tracked.file_of(NAME, target.isa, options.results)
    found: list[Line] = []
    for example in chosen(options.models):
        found.append(trained(example, options.seconds, conditions(target, None)))
        tracked.put(path, "model", asdict(found[-1]))
    for shown, under, lines in measured(options.results):
        publish(shown, under, [asdict(x) for x in lines])
    return 0 if all(x.is_as_with_xla for x in found) else 1


def trained(example: Example, seconds: float, under: Mapping[str, Any]) -> Line:
    """Raises ProgramError for an example that is no step of training, or that was not tuned."""
    if example.name not in STEPS:
        raise ProgramError(
            f"expected a step of training, {' or '.join(STEPS)}, got {example.name}; name one"
        )
    tuning = tuned_apart(example, seconds)
    if tuning.failure:
        raise ProgramError(
            f"expected a run of the tuner for {example.name}, got none: {tuning.failure}"
        )
    function, (state, x, _) = example.made()
    tuned, note = ours(example, Path(tuning.database))
    given = list(batches(x.shape, STEPS[example.name]))
    xla = list(losses(example.jitted(function), state, given))
    return line_of(example.name, under, xla, list(losses(tuned, state, given)), note)


def batches(shape: tuple[int, ...], count: int) -> Iterator[Batch]:
    """So many batches of this shape, with their labels."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((CLASSES, *shape[1:]), np.float32)
    for _ in range(count):
        labels = rng.integers(0, CLASSES, shape[0]).astype(np.int32)
        noise = rng.standard_normal(shape, np.float32)
        yield np.float32(SIGNAL) * images[labels] + noise, labels


def losses(step: Callable[..., Any], state: Any, given: Sequence[Batch]) -> Iterator[float]:
    """The loss of each step; the state that came is not given away."""
    here = jax.tree.map(lambda x: jax.device_put(np.array(x)), state)
    for x, labels in given:
        here, loss = step(here, x, labels)
        yield float(loss)


def measured(folder: Path = tracked.RESULTS) -> Iterator[tuple[Table, dict[str, Any], list[Line]]]:
    """The table of every kind of core, with the conditions of its lines, and these."""
    for core, path in tracked.cores(NAME, folder):
        found = tracked.read(path, "model")
        lines = [Line(**found[name]) for name in STEPS if name in found]
        yield table(core, lines), tracked.spanning([x.conditions for x in lines]), lines


def table(core: str, lines: Sequence[Line]) -> Table:
    return Table(
        name=f"models_losses_{core}",
        columns=[
            "step of training", ">steps", ">first loss", ">XLA's last", ">hlotune's last",
            ">largest difference", "verdict",
        ],
        rows=[_cells(x) for x in lines],
        notes=[
            "the difference is that of any step, as a share of XLA's loss; at most "
            f"{TOLERANCE:g} is as with XLA",
            *(f"{x.model}: {x.note}" for x in lines if x.note),
        ],
    )  # fmt: skip


def _cells(line: Line) -> tuple[str, ...]:
    numbers = (line.first, line.xla_last, line.ours_last)
    return (
        line.model, str(line.steps), *("-" if x is None else f"{x:.{DIGITS}g}" for x in numbers),
        "-" if line.apart is None else f"{line.apart:.1g}",
        "as with XLA" if line.is_as_with_xla else "apart",
    )  # fmt: skip


if __name__ == "__main__":
    command(main)

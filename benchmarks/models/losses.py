"""Whether training goes as with XLA: the losses of many steps, each from the state of the last.

    python -m benchmarks.models.losses --models mnist_training --seconds 60

A step is tuned as by `python -m benchmarks.models`, whose run is taken where it was made with the
same budget, and gives its state away as there.  Both sides begin from the same weights and see the
same batches: of ten classes, each a random image in much noise.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.command import command
from benchmarks.models.examples import Example, chosen
from benchmarks.models.peer_ours import ours
from benchmarks.models.tuning import tuned_apart
from benchmarks.results import Table, conditions, publish
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import ProgramError

STEPS: Mapping[str, int] = {"mnist_training": 100, "resnet18_training": 20}
CLASSES, SIGNAL = 10, 0.1
"""How many classes there are, and the share of an image that tells which."""
TOLERANCE = 1e-3
"""The largest difference of a loss, as a share of XLA's."""
Batch = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The losses of a model, a step each."""

    model: str
    xla: tuple[float, ...]
    ours: tuple[float, ...]
    note: str
    """Why XLA keeps the step; nothing where kernels of ours are in it."""

    @property
    def apart(self) -> float:
        """The largest difference, as a share of XLA's loss."""
        return max(abs(o - x) / abs(x) for x, o in zip(self.xla, self.ours, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(STEPS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model")
    options = parser.parse_args()
    under = conditions(host_target(), None)
    found: list[Line] = []
    for example in chosen(options.models):
        found.append(trained(example, options.seconds))
        publish(table(found), under, [asdict(x) for x in found])
    return 0 if all(x.apart <= TOLERANCE for x in found) else 1


def trained(example: Example, seconds: float) -> Line:
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
    return Line(
        model=example.name, note=note,
        xla=tuple(losses(example.jitted(function), state, given)),
        ours=tuple(losses(tuned, state, given)),
    )  # fmt: skip


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


def table(lines: Sequence[Line]) -> Table:
    return Table(
        name="models_losses",
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
    return (
        line.model, str(len(line.xla)), f"{line.xla[0]:.4g}", f"{line.xla[-1]:.6g}",
        f"{line.ours[-1]:.6g}", f"{line.apart:.1g}",
        "as with XLA" if line.apart <= TOLERANCE else "apart",
    )  # fmt: skip


if __name__ == "__main__":
    command(main)

"""Networks for images from ONNX, with channels first, against the same in JAX with channels last.

    python -m benchmarks.onnx_images --database tuning.db
    python -m benchmarks.onnx_images --models examples/squeezenet.py:model --budget 60s

Each model is a factory of a function and its image with channels last.  The ONNX model is the same
function of an image with channels first, as `tune export --onnx` writes it: its convolutions and
pools have channels first.  With a budget both are tuned first, one after the other, on the
database, so that they share the records of kernels that are the same.  Tuned programs are timed in
turns by blocking calls in one process, each call behind two of the same side.
"""

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.command import command
from benchmarks.results import Table, conditions, milliseconds, publish
from benchmarks.torch_modules import sample
from hlotune.cli.progress import watching
from hlotune.deploy.apply import apply
from hlotune.deploy.to_onnx.model import model_of, save
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import Ratio, ratio
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.search.budget.limits import seconds
from hlotune.search.tune import tune

MODELS = (
    "examples/squeezenet.py:model",
    "examples/mobilenet.py:model",
    "examples/resnet.py:resnet50",
)


@dataclass(frozen=True, slots=True)
class Line:
    model: str
    jax_s: tuple[float, ...]
    onnx_s: tuple[float, ...]
    difference: float
    """The largest difference of the results, divided by the largest value."""
    shared: int
    """Kernels of the tuned ONNX model that the tuned program of JAX has, too."""
    kernels: int

    @property
    def speed(self) -> Ratio:
        """The time from ONNX over that from JAX."""
        return ratio(self.onnx_s, self.jax_s)


def main() -> None:
    options = parsed()
    target = host_target()
    with ProcessRunner(target) as runner:
        before = conditions(target, runner.properties())
    lines = [line_of(model, options) for model in options.models]
    publish(table(lines), before, [described(line) for line in lines])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", metavar="MODEL", default=MODELS)
    parser.add_argument("--database", type=Path, default=Path("build/onnx_images.db"))
    parser.add_argument("--budget", type=seconds, help="of tuning each program first, as in 60s")
    parser.add_argument("--rounds", type=int, default=61)
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def line_of(model: str, options: argparse.Namespace) -> Line:
    function, image = made(model)
    last = load(function, image)
    with TemporaryDirectory() as folder:
        first = from_onnx(function, image, Path(folder) / "model.onnx")
        for program in (last, first) if options.budget else ():
            with watching() as progress:
                tune(program, budget_s=options.budget, database=options.database, progress=progress)
    ours, theirs = (apply(p, database=options.database) for p in (last, first))
    turned = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    sides = {"jax": bound(ours, image), "onnx": bound(theirs, turned)}
    samples = timed(sides, options.rounds)
    a, b = (np.asarray(jax.tree.leaves(side())[0], np.float64) for side in sides.values())
    keys = [{s.kernel.key for s in tuned.sites} for tuned in (ours, theirs)]
    return Line(
        model, samples["jax"], samples["onnx"], float(np.abs(a - b).max() / np.abs(a).max()),
        len(keys[0] & keys[1]), len(keys[1]),
    )  # fmt: skip


def made(model: str) -> tuple[Callable[[Any], Any], Any]:
    """The function and the image that the factory `path.py:name` returns."""
    path, _, name = model.rpartition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    function, (image,) = getattr(module, name)()
    return function, np.asarray(image)


def from_onnx(function: Callable[[Any], Any], image: Any, path: Path) -> Program:
    """The function of an image with channels first, by way of an ONNX model."""
    turned = image.transpose(0, 3, 1, 2)
    program = load(lambda x: function(jnp.transpose(x, (0, 2, 3, 1))), turned)
    save(model_of(program), path)
    return load(path)


def bound(function: Callable[[Any], Any], image: Any) -> Callable[[], Any]:
    argument = jax.device_put(image)
    return lambda: jax.block_until_ready(function(argument))  # type: ignore[no-untyped-call]


def timed(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, ...]]:
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(rounds):
        for name in sides if k % 2 else reversed(sides):
            samples[name].append(sample(sides[name]))
    return {name: tuple(found) for name, found in samples.items()}


def described(line: Line) -> dict[str, Any]:
    speed = line.speed
    return {
        "model": line.model, "jax_s": line.jax_s, "onnx_s": line.onnx_s,
        "ratio": [speed.median, speed.low, speed.high], "difference": line.difference,
        "shared": line.shared, "kernels": line.kernels,
    }  # fmt: skip


def table(lines: Sequence[Line]) -> Table:
    return Table(
        name="onnx_images",
        columns=["model", ">JAX ms", ">ONNX ms", ">ONNX / JAX", ">95 %", ">shared kernels",
                 ">difference"],
        rows=[cells(line) for line in lines],
        notes=["blocking calls in turns; difference: the largest one of the results over the "
               "largest value"],
    )  # fmt: skip


def cells(line: Line) -> list[str]:
    speed = line.speed
    return [
        line.model, milliseconds(median(line.jax_s)), milliseconds(median(line.onnx_s)),
        f"{speed.median:.3f}", f"{speed.low:.3f} to {speed.high:.3f}",
        f"{line.shared} of {line.kernels}", f"{line.difference:.1e}",
    ]  # fmt: skip


if __name__ == "__main__":
    command(main)

"""What putting images into columns (im2col) could win: convolutions against products of columns.

    python -m benchmarks.columns --trials 64

Direct schedules are implicit products: register tiles run over positions and features, packed
images and weights are read in panels.  An algorithm that first writes the image out in columns ends
in a plain product of (positions, taps) by (taps, features).  Here both are tuned alike and timed in
turns with multiply-adds in registers, in the mode `warm`; the product gets its columns for nothing.
Winograd's algorithms are left out (`--numerics strict`).
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import jax

from benchmarks.cases import CASES, selected
from benchmarks.command import RECORDED, command
from benchmarks.jax_operations import computed, inputs_of
from benchmarks.operations import Convolution, Operation, Product
from benchmarks.results import Table, conditions, publish
from hlotune.cli.progress import watching
from hlotune.codegen.built import Built
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.comparison import Beside, Ratio
from hlotune.measure.trial import CacheMode, Candidate
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.tune import tune
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.database import conditions as under_conditions
from hlotune.tuning_logs.decisions import decision

WINDOWED = (
    "C1", "C4", "C7", "C10", "DIL1", "DIL4", "C1D1", "C1D3", "C3D1", "C4_nchw", "C7_nchw",
    "C10_nchw", "C12_nchw", "DIL4_nchw",
)  # fmt: skip
NUMERICS: Numerics = "strict"
CACHE: CacheMode = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    case: str
    flops: int
    """The operations of the convolution, without padding."""
    columns_bytes: int
    convolution: Ratio
    """Share of the multiply-add peak that its own operations have."""
    product: Ratio
    """The same, of the same operations: what is multiplied with padding counts for nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=WINDOWED)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--database", type=Path, default=Path("build/columns.db"))
    options = parser.parse_args()
    try:
        cases = selected(options.cases)
    except ValueError as error:
        parser.error(str(error))
    target = host_target()
    with ProcessRunner(target) as runner:
        before = conditions(target, runner.properties())
    lines: list[Line] = []
    for name in cases:
        lines.append(measured(name, target, options.trials, options.database))
        publish(table(lines, options.trials), before, [asdict(line) for line in lines])


def measured(name: str, target: CpuTarget, trials: int, database: Path) -> Line:
    case = CASES[name]
    if not isinstance(case, Convolution) or not is_plain(case):
        raise SystemExit(
            f"expected a forward convolution in f32, of one image and group, got {name}"
        )
    flat = in_columns(case)
    convolution, product = (
        share(program(x), target, trials, database, case.flops) for x in (case, flat)
    )
    return Line(
        case=name,
        flops=case.flops,
        columns_bytes=4 * flat.k * prod(case.result_size),
        convolution=convolution,
        product=product,
    )


def is_plain(case: Convolution) -> bool:
    alone = case.groups == case.batch == 1 and not case.transposed
    return alone and case.direction == "forward" and case.element == "f32"


def in_columns(case: Convolution) -> Product:
    """The product that is left once the image lies in columns, as layouts of both have it."""
    positions, taps = prod(case.result_size), case.inputs * case.window ** len(case.size)
    if case.channels == "last":
        return Product(m=positions, k=taps, n=case.outputs)
    return Product(m=case.outputs, k=taps, n=positions)


def program(operation: Operation) -> Program:
    def function(weights: Any, x: Any) -> jax.Array:
        return computed(operation, weights, x)

    return load(function, *inputs_of(operation))


def share(loaded: Program, target: CpuTarget, trials: int, database: Path, flops: int) -> Ratio:
    with watching() as progress:
        result = tune(
            loaded, trials=trials, database=database, cache=CACHE, numerics=NUMERICS,
            progress=progress,
        )  # fmt: skip
    (found,) = result.kernels
    return beside(found.key, target, database).share(flops)


def beside(key: str, target: CpuTarget, database: Path) -> Beside:
    """What was chosen, in turns with the peak."""
    with Database(database, create=False) as opened:
        under = under_conditions(target, toolchain(), CACHE)
        schedule = decision(opened, key, numerics=NUMERICS, **under).schedule
        kernel = opened.kernel(key)
    if schedule == DEFAULT:
        raise SystemExit(f"expected {key} to be won, got the default kept: give it more --trials")
    with ProcessBuilder(target) as builder, ProcessRunner(target, NUMERICS) as runner:
        (built,) = builder.build([Candidate(kernel, schedule)])
        if not isinstance(built, Built):
            raise SystemExit(f"expected the chosen schedule to be built, got {built}")
        return runner.beside_peak(kernel, built, "f32", cache=CACHE)


def table(lines: Sequence[Line], trials: int) -> Table:
    return Table(
        name="columns",
        columns=["case", ">MFLOP", ">columns KiB", ">convolution", ">95 %", ">product alone",
                 ">95 %", ">over the convolution"],
        rows=[cells(line) for line in lines],
        notes=[
            f"shares of the f32 multiply-add peak, in turns with it; {trials} trials each; the "
            "product's without the copy into columns",
        ],
    )  # fmt: skip


def cells(line: Line) -> list[str]:
    return [
        line.case,
        f"{line.flops / 1e6:.0f}",
        f"{line.columns_bytes / 1024:.0f}",
        *shown(line.convolution),
        *shown(line.product),
        f"{line.product.median / line.convolution.median:.2f}",
    ]


def shown(share: Ratio) -> tuple[str, str]:
    return f"{share.median:.0%}", f"{share.low * 100:.0f} to {share.high * 100:.0f}"


if __name__ == "__main__":
    command(main, RECORDED)

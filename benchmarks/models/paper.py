"""VGG19 beside what a paper measured of it on a larger machine in 2018.

Fischer and Saba, "Automatic Full Compilation of Julia Programs and ML Models to Cloud TPUs",
arXiv 1810.09868, 2018: seconds of VGG19 on a CPU of 20 cores, and on a TPU in all.
"""

from collections.abc import Mapping, Sequence

from benchmarks.models.contestants import OURS
from benchmarks.models.kept import Line
from benchmarks.results import Table

PAPER: Mapping[int, tuple[str, str, str, str]] = {
    1: ("0.79", "1.16", "12.06", "0.86"),
    10: ("6.67", "9.55", "64.8", "0.74"),
    100: ("52.4", "93", "over 600", "0.93"),
}
"""By the batch, the seconds of the forward pass by Flux, PyTorch and FluXLA on the CPU, and by the
TPU in all."""
ROWS: Mapping[str, tuple[str, int]] = {
    "vgg19": ("forward", 1), "vgg19_10": ("forward", 10), "vgg19_100": ("forward", 100),
    "vgg19_gradient": ("gradient", 1), "vgg19_gradient_10": ("gradient", 10),
}  # fmt: skip


def paper_table(lines: Sequence[Line]) -> Table:
    """Seconds of VGG19, forward and its gradient, by batches: of the models of `ROWS`."""
    return Table(
        name="models_vgg19",
        columns=[
            "pass", ">batch", ">XLA s", ">hlotune s", ">XLA / hlotune", ">Flux s", ">PyTorch s",
            ">FluXLA s", ">TPU s",
        ],
        rows=[_cells(x) for x in lines],
        notes=[
            "the last four columns are figures of arXiv 1810.09868, of 2018: a CPU of 20 cores, "
            "and a TPU in all; XLA and hlotune ran on the two threads of this machine",
            "batch 100 has the schedules that were found for batch 10",
        ],
    )  # fmt: skip


def _cells(line: Line) -> tuple[str, ...]:
    direction, batch = ROWS[line.model]
    ratio = line.over_ours(line.default)
    figures = PAPER[batch] if direction == "forward" else ("-",) * 4
    return (
        direction, str(batch), _seconds(line.time_s(line.default) if line.default else None),
        _seconds(line.time_s(OURS)), f"{ratio.median:.2f}" if ratio else "-", *figures,
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"

"""All figures of a report as files of their own."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.model import model_figure
from hlotune.tuning_logs.figures.program import program_figures
from hlotune.tuning_logs.predictions import Pairs


def write_figures(found: Evidence, folder: Path, predicted: Sequence[Pairs] = ()) -> int:
    """Each as SVG and PNG in a folder, which is made where it is missing; returns how many.

    `predicted` are the ranks of each kernel's trials, where the model could be asked again.

    Raises OSError where they cannot be written, VersionError without matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    model = model_figure(found, predicted)
    for figure in chain(program_figures(found), [model], map(trials, found.kernels)):
        if figure is not None:
            (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
            (folder / f"{figure.name}.png").write_bytes(figure.png())
            count += 1
    return count

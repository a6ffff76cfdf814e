"""Figures of a report: what they show in words, as files, and where matplotlib is missing."""

import builtins
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from hlotune.schedules.errors import VersionError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import Evidence, evidence
from hlotune.tuning_logs.figures.canvas import require_matplotlib, shown
from hlotune.tuning_logs.figures.files import write_figures
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.program import names_of, program_figures, speedups
from hlotune.tuning_logs.figures.ways import kernel_way, program_way
from tests.support.recorded import fill


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Evidence]:
    with Database(tmp_path / "tuning.db") as database:
        yield evidence(database, fill(database))


def test_the_figures_of_a_run_are_all_there(found: Evidence) -> None:
    names = [f.name for f in program_figures(found)]
    assert names == ["speedups", "times", "limits", "roofline", "search"]


def test_speedups_are_told_with_their_intervals_and_what_is_kept(found: Evidence) -> None:
    figure = speedups(found)
    assert figure is not None
    assert "add [8] 2.00 times (1.96 to 2.04)" in figure.alt
    assert "multiply [8] 0.98 times (0.96 to 1.00), the default is kept" in figure.alt


def test_an_interval_without_an_end_is_drawn(found: Evidence) -> None:
    whole = found.report.whole
    assert whole is not None
    open_ended = replace(whole, speedup_low=0.0, speedup_high=float("inf"))
    assert speedups(replace(found, report=replace(found.report, whole=open_ended))) is not None


def test_where_nothing_was_compared_there_is_no_figure_of_it(found: Evidence) -> None:
    nothing = replace(found, kernels=(), report=replace(found.report, whole=None))
    assert list(program_figures(nothing)) == []


def test_figures_without_peaks_leave_limits_and_roofline_out(found: Evidence) -> None:
    bare = replace(found, peaks=None, kernels=tuple(replace(k, limit=None) for k in found.kernels))
    assert [f.name for f in program_figures(bare)] == ["speedups", "times", "search"]


def test_the_figure_of_a_kernel_counts_all_trials(found: Evidence) -> None:
    won = next(k for k in found.kernels if k.report.won)
    figure = trials(won)
    assert figure is not None
    assert "2 measured trials of add [8], from 1.00 ms to 1.50 ms" in figure.alt
    assert "1 failed, the default took 2.00 ms" in figure.alt


def test_a_kernel_of_which_nothing_was_measured_has_no_figure(found: Evidence) -> None:
    failed = next(k for k in found.kernels if k.report.label == "divide [8]")
    assert trials(failed) is None


def test_the_way_of_a_kernel_begins_at_its_default_and_falls(found: Evidence) -> None:
    won = next(k for k in found.kernels if k.report.won)
    way = kernel_way(won)
    assert way is not None
    assert (way.trials, way.times_s) == ((0, 1, 2, 3), (2e-3, 1e-3, 1e-3, 1e-3))
    whole = program_way(found.kernels)
    assert whole is not None
    # Two calls of 2 ms and 24 of 1 ms, where the second found nothing faster.
    assert whole.times_s[0] == pytest.approx(28e-3)
    assert whole.times_s[-1] == pytest.approx(26e-3)
    assert list(whole.after_s) == sorted(whole.after_s)


def test_files_are_svg_without_addresses_and_png(found: Evidence, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "figures"
    count = write_figures(found, folder)
    written = sorted(p.name for p in folder.iterdir())
    assert len(written) == 2 * count and count >= 7
    for path in folder.glob("*.svg"):
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert "<metadata" not in path.read_text(encoding="utf-8")
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in folder.glob("*.png"))


def test_equal_records_give_equal_figures(found: Evidence) -> None:
    assert [f.svg for f in program_figures(found)] == [f.svg for f in program_figures(found)]


def test_labels_of_records_are_drawn_as_text(found: Evidence) -> None:
    labels = ("$x^2$ & <b>", "\x1b[31m\ud800", "ラベル", "$\\frac{", "a" * 500)
    compared = [k for k in found.kernels if k.report.champion]
    kernels = tuple(
        replace(k, report=replace(k.report, label=label, key=f"{n:032x}"))
        for n, (k, label) in enumerate(zip(cycle(compared), labels, strict=False))
    )
    for figure in program_figures(replace(found, kernels=kernels)):
        ET.fromstring(figure.svg)
        assert figure.png()
    names = list(names_of(kernels).values())
    assert len(set(names)) == len(labels)
    bars = speedups(replace(found, kernels=kernels))
    assert bars is not None
    words = "".join(ET.fromstring(bars.svg).itertext())
    assert all(name in words for name in names), "one label is not drawn"


def test_kernels_that_are_shown_alike_have_digits_of_their_keys(found: Evidence) -> None:
    first, second, third = found.kernels
    alike = replace(second, report=replace(second.report, label=first.report.label))
    names = list(names_of((first, alike, third)).values())
    assert names[:2] == [f"multiply [8] ({k.report.key[:4]})" for k in (first, second)]
    assert names[2] == "divide [8]"


def test_a_long_label_loses_its_middle() -> None:
    text = shown("conv2d 56x56x64->64 k3 s1 +scale+add+relu", 30)
    assert len(text) == 30
    assert text.startswith("conv2d 56x56x64->64") and text.endswith("+add+relu")


def test_without_matplotlib_one_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **others: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *args, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(VersionError, match=r"pip install 'hlotune\[report\]'"):
        require_matplotlib()

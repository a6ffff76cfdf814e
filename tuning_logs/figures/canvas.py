"""Where figures are drawn: matplotlib, asked for by this module alone, and SVG that pages can hold.

A figure is drawn once, in the colours of paper.  In a page each of these becomes a variable of its
style sheet, so that it follows the light and the dark theme; a file of its own keeps them.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hlotune.schedules.errors import VersionError
from hlotune.tuning_logs.text import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

INSTALL = "pip install 'hlotune[report]'"

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#d1d9e0", "#fefefe"
DEFAULT, TUNED, LOST, LIMIT = "#848d97", "#0860c9", "#b3261e", "#8a5a00"
VARIABLES = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper",
    DEFAULT: "--default", TUNED: "--tuned", LOST: "--lost", LIMIT: "--limit",
}  # fmt: skip
"""Colour of paper to the variable of the page's style sheet."""

WIDTH_IN = 7.4
ROW_IN = 0.31
"""Height of a row of bars."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "hlotune", "text.parse_math": False,
    "font.family": ["DejaVu Sans"], "font.size": 9.5, "axes.titlesize": 10.5,
    "text.color": INK, "axes.labelcolor": MUTED, "axes.edgecolor": GRID, "axes.facecolor": "none",
    "figure.facecolor": "none", "savefig.facecolor": "none",
    "xtick.color": GRID, "ytick.color": GRID, "xtick.labelcolor": MUTED, "ytick.labelcolor": INK,
    "grid.color": GRID, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.formatter.use_mathtext": False, "path.simplify": True,
    "axes.unicode_minus": False, "legend.frameon": False, "legend.fontsize": 9,
}  # fmt: skip
"""Text stays text, which a page can search and read out; nothing in it is taken for a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure in three forms, with what it shows in words."""

    name: str
    """The name of its file, without an ending."""
    title: str
    alt: str
    """What the figure shows, with its numbers, for readers who cannot see it."""
    svg: str
    """A file of its own, on paper."""
    drawn: "Drawing"

    def png(self) -> bytes:
        """An image of about 1300 pixels in width, on paper."""
        image = io.BytesIO()
        with rc_of_figures():
            self.drawn.savefig(
                image, format="png", dpi=180, facecolor=PAPER, metadata={"Software": None}
            )
        return image.getvalue()

    def inline(self) -> str:
        """An `<svg>` element for a page; its colours are variables, its ids begin with its name.

        It has no `style` attributes, which a strict policy of a page would forbid.
        """
        text = re.sub(r"<style.*?</style>", "", self.svg[self.svg.index("<svg") :], flags=re.DOTALL)
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, f"var({variable})")
        used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
        text = re.sub(
            r' id="([^"]+)"', lambda m: _id(m[1], self.name) if m[1] in used else "", text
        )
        text = re.sub(r'(url\(#|href="#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r' (?:width|height)="[^"]*pt"', "", text, count=2)
        text = re.sub(r' xmlns(?::xlink)?="[^"]+"', "", text).replace("xlink:href", "href")
        text = re.sub(r' style="([^"]*)"', lambda m: _presentation(m[1]), text)
        return text.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1).strip()


def _presentation(style: str) -> str:
    """Declarations as attributes: `fill: none; stroke: red` is ` fill="none" stroke="red"`."""
    pairs = (part.partition(":") for part in style.split(";") if part.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)


def _id(name: str, figure: str) -> str:
    return f' id="{figure}-{name}"'


@contextmanager
def drawing(height_in: float, columns: int = 1, **widths: Any) -> "Iterator[tuple[Drawing, Any]]":
    """A figure of the width of a page, with its axes side by side.

    Raises VersionError where matplotlib is not installed, with the command that installs it.
    """
    require_matplotlib()
    from matplotlib.figure import Figure as Drawing

    with rc_of_figures():
        figure = Drawing(figsize=(WIDTH_IN, height_in), layout="constrained")
        yield figure, figure.subplots(1, columns, squeeze=False, **widths)[0]


@contextmanager
def rc_of_figures() -> Iterator[None]:
    """Our settings in the place of the user's; a font may lack letters of a name, and no more."""
    from matplotlib import rc_context, rcParamsDefault

    settings: Any = dict(rcParamsDefault)
    with rc_context(settings | _SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        yield


def require_matplotlib() -> None:
    """Raises VersionError where it is missing, with the command that installs it."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise VersionError(
            f"expected matplotlib for the figures of a report, found none; install it with "
            f"`{INSTALL}`, or leave out -o, --figures and read the tables"
        ) from error


def finished(drawn: "Drawing", *, name: str, title: str, alt: str) -> Figure:
    """The figure as SVG, without a date or addresses."""
    text, nothing = io.StringIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(text, format="svg", metadata=nothing)
    return Figure(name=name, title=title, alt=alt, svg=_on_paper(text.getvalue()), drawn=drawn)


def _on_paper(svg: str) -> str:
    """The SVG without the document type, whose address no reader needs."""
    return re.sub(r"<!DOCTYPE[^>]*>\s*", "", svg)


def plain(axes: "Axes", *, grid: Literal["x", "both"] = "x") -> None:
    """Few lines: a grid along the values, no ticks."""
    axes.grid(visible=True, axis=grid, linewidth=0.7)
    axes.tick_params(length=0)


def round_ticks(axes: "Axes", way: Literal["x", "y"], values: Sequence[float]) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 of each decade, of many decades at 1 alone, as
    plain numbers.  There is a value.
    """
    low, high = min(values) / 1.25, max(values) * 1.25
    inside = [
        x for e in range(-12, 16) for m in (1, 2, 5) if low <= (x := m * 10.0**e) <= high
    ] or [min(values)]
    if len(inside) > 9:
        inside = [x for x in inside if f"{x:e}".startswith("1")]
    axis = axes.xaxis if way == "x" else axes.yaxis
    axis.set_ticks(inside, labels=[f"{x:g}" for x in inside])
    axis.set_ticks([], minor=True)
    (axes.set_xlim if way == "x" else axes.set_ylim)(low, high)


def shown(label: str, most: int = 36) -> str:
    """A label of records as text of a figure: escaped, and its middle cut where it is too long, as
    labels begin with the operation and end with what is fused.
    """
    text = " ".join(escaped(label, keep="").split())
    end = most // 3
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"

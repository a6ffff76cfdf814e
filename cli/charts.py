"""Line charts as SVG text, without a library."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 52
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4fa3", "#b8860b", "#4a4a4a", "#d16ba5", "#2a9d8f")
TICKS = 5


def line_chart(title: str, x_label: str, y_label: str, lines: Mapping[str, Sequence[float]]) -> str:
    """An SVG of one line a name; a line's points stand at x = 1, 2, 3, ...; there is a line."""
    longest = max(len(ys) for ys in lines.values())
    low = min(min(ys) for ys in lines.values())
    high = max(max(ys) for ys in lines.values())
    span = (high - low) or 1.0

    def place(k: int, y: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * k / max(1, longest - 1)
        return f"{x:.1f},{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / span:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(WIDTH / 2, 20, title, "middle", size=14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, "middle"),
        _text(LEFT, TOP - 10, y_label, "start"),
        *_grid(longest, low, span),
    ]
    for number, (name, ys) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(place(k, y) for k, y in enumerate(ys))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(WIDTH - RIGHT + 12, TOP + 16 + 18 * number, name, "start", colour))
    return "\n".join([*parts, "</svg>\n"])


def _grid(longest: int, low: float, span: float) -> list[str]:
    parts = []
    for k in range(TICKS + 1):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * k / TICKS
        x = LEFT + (WIDTH - LEFT - RIGHT) * k / TICKS
        parts += [
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>',
            _text(LEFT - 8, y + 4, f"{low + span * k / TICKS:.3g}", "end"),
            _text(x, HEIGHT - BOTTOM + 18, str(round(1 + (longest - 1) * k / TICKS)), "middle"),
        ]
    return parts


def _text(
    x: float, y: float, text: str, anchor: str, colour: str = "#222222", size: int = 12
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="{size}">{escape(text)}</text>'

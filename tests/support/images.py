"""Screenshots held against references, whatever a browser makes of the edges of letters."""

from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

BLOCK = 8
"""Images are compared by the means of squares of so many pixels a side."""
COLOURS = 48
"""References are kept with so many colours."""


def difference(first: Path, second: Path) -> float:
    """The mean difference of two images in shades of grey, from 0 to 255.

    Images of different sizes are compared where they overlap; their sizes may not differ by more
    than `BLOCK` pixels, or the difference is 255.
    """
    with Image.open(first) as a, Image.open(second) as b:
        sizes = zip(a.size, b.size, strict=True)
        if any(abs(m - n) > BLOCK for m, n in sizes):
            return 255.0
        box = (0, 0, min(a.width, b.width), min(a.height, b.height))
        shades = [image.convert("L").crop(box).reduce(BLOCK) for image in (a, b)]
    return float(ImageStat.Stat(ImageChops.difference(*shades)).mean[0])


def keep(shot: Path, reference: Path) -> None:
    """Writes a screenshot as a reference, in few colours."""
    reference.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(shot) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            reference, optimize=True
        )


def require_alike(shot: Path, reference: Path, most: float) -> None:
    """Fails the test where a screenshot differs from its reference by more than `most` shades."""
    if not reference.exists():
        pytest.fail(f"expected a reference at {reference}; make it with `pytest --update-golden`")
    found = difference(shot, reference)
    assert found <= most, (
        f"expected {shot} to look as {reference}, and they differ by {found:.1f} shades in the "
        f"mean, more than {most}; look at both, and if the change is meant: pytest --update-golden"
    )

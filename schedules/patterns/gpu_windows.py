"""How blocks of images lie in shared memory so that all taps of a window read them in place.

A *slab* is one position of eight images: eight lines of 64 channels, which the matrix unit reads as
eight rows.  Eight slabs in a row are a *unit*, 64 rows of the product.  A block of results has some
rows and columns of some groups of eight images.  The images that it reads lie in *planes*, one for
each remainder that rows and columns leave by the stride; in a plane, a tap of the window is an
offset.  Borders are positions outside the image, which the copy engine fills with zeros.
"""

from dataclasses import dataclass
from functools import cached_property

from hlotune.schedules.patterns.gpu import GpuConvolution

GROUP = 8
"""Images of a slab, and slabs of a unit."""
LINE = 64
"""Channels of 2 bytes in a line."""
UNIT_ROWS = GROUP * GROUP
SLAB_BYTES = GROUP * LINE * 2


@dataclass(frozen=True, slots=True)
class Tap:
    """One element of the window."""

    number: int
    """The number of the tap in the order of the weights."""
    shift: int
    """Slabs from a position to what this tap reads for it."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Rows and columns of the images with one remainder each, and the taps that read them."""

    row: int
    column: int
    taps: tuple[Tap, ...]


@dataclass(frozen=True)
class WindowBlocks:
    """Blocks of `rows` by `columns` results (a multiple of 8) of `groups` of eight images."""

    convolution: GpuConvolution
    groups: int
    rows: int
    columns: int

    @property
    def first(self) -> int:
        """The least offset of a tap in a plane."""
        return -self.convolution.padding // self.convolution.stride

    @property
    def reach(self) -> int:
        """By how many rows, and columns, a block reads more than it has results."""
        c = self.convolution
        return (c.window - 1 - c.padding) // c.stride - self.first

    @property
    def rows_read(self) -> int:
        return self.rows + self.reach

    @property
    def columns_read(self) -> int:
        return min(self.columns, self.convolution.out) + self.reach

    @property
    def slabs(self) -> int:
        """Elements of one plane of one group."""
        return self.rows_read * self.columns_read

    @property
    def overhang(self) -> int:
        """Slabs behind the last one that units with fewer than eight results read for nothing."""
        return max(0, self.columns - self.convolution.out)

    @property
    def units(self) -> int:
        return self.groups * self.rows * self.columns // GROUP

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along images, rows and columns of the results."""
        c = self.convolution
        return (
            -(-c.batch // (GROUP * self.groups)),
            -(-c.out // self.rows),
            -(-c.out // self.columns),
        )

    @property
    def blocks(self) -> int:
        images, rows, columns = self.grid
        return images * rows * columns

    @property
    def taps(self) -> int:
        return self.convolution.window**2

    @cached_property
    def planes(self) -> tuple[Plane, ...]:
        """The planes that some tap reads."""
        c = self.convolution
        along = [divmod(tap - c.padding, c.stride) for tap in range(c.window)]
        found: dict[tuple[int, int], list[Tap]] = {}
        for y, (down, row) in enumerate(along):
            for x, (right, column) in enumerate(along):
                shift = (down - self.first) * self.columns_read + right - self.first
                found.setdefault((row, column), []).append(Tap(y * c.window + x, shift))
        return tuple(Plane(row, column, tuple(taps)) for (row, column), taps in found.items())

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Images with an axis for the rows of each plane; its columns stand before the channels."""
        c, s = self.convolution, self.convolution.stride
        if s == 1:
            return c.batch, c.size, c.size, c.channels
        return c.batch, c.size // s, s, c.size // s, s * c.channels

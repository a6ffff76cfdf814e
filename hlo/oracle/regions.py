"""Which boxes of a large result to look at: where kernels go wrong, and a few at random."""

from itertools import product, repeat
from math import prod

from numpy.random import Generator

from hlotune.hlo.oracle.boxes import Box, whole

RANDOM_BLOCKS = 8
MOST_CORNERS = 32


def regions_to_check(
    shape: tuple[int, ...], rng: Generator, limit_elements: int, most_boxes: int | None = None
) -> list[Box]:
    """Boxes of about `limit_elements` elements together: corners, borders and random blocks.

    A small result is one box; of a result of many dimensions only some corners are taken.  At most
    `most_boxes`, three at least, are the first and the last corner, a random block, and others at
    random places or borders, two of them as long as may be along the two longest dimensions.
    """
    if prod(shape) <= limit_elements:
        return [whole(shape)]
    if most_boxes is not None:
        return _few(shape, rng, max(1, limit_elements // most_boxes), most_boxes)
    long = [d for d, n in enumerate(shape) if n > 1]
    corners = list(product((False, True), repeat=len(long)))
    if len(corners) > MOST_CORNERS:
        corners = [corners[i] for i in rng.choice(len(corners), MOST_CORNERS, replace=False)]
    each = max(1, limit_elements // (len(corners) + 2 * len(long) + RANDOM_BLOCKS))
    sides = block(shape, each)
    boxes = [_corner(shape, sides, dict(zip(long, ends, strict=True))) for ends in corners]
    boxes += [_border(shape, each, d, end, rng) for d in long for end in (False, True)]
    boxes += [_placed(shape, sides, rng) for _ in range(RANDOM_BLOCKS)]
    return list(dict.fromkeys(boxes))


def _few(shape: tuple[int, ...], rng: Generator, each: int, most_boxes: int) -> list[Box]:
    sides = block(shape, each)
    boxes = [_corner(shape, sides, dict.fromkeys(range(len(shape)), end)) for end in (False, True)]
    boxes.append(_placed(shape, sides, rng))
    longest = sorted(range(len(shape)), key=lambda d: -shape[d])[:2]
    others = [*(_long_sides(shape, each, d) for d in longest), *repeat(sides, most_boxes)]
    for other in others[: most_boxes - len(boxes)]:
        ends = {d: bool(rng.integers(2)) for d in range(len(shape)) if rng.integers(2)}
        placed = _placed(shape, other, rng)
        corner = _corner(shape, other, ends)
        boxes.append(tuple(corner[d] if d in ends else placed[d] for d in range(len(shape))))
    return list(dict.fromkeys(boxes))


def block(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The largest block, as near to a cube as the shape allows, of at most `limit` elements."""
    side = 1
    while side < max(shape, default=1) and prod(min(n, side + 1) for n in shape) <= limit:
        side += 1
    return tuple(min(n, side) for n in shape)


def _corner(shape: tuple[int, ...], sides: tuple[int, ...], ends: dict[int, bool]) -> Box:
    return tuple(
        (n - side, n) if ends.get(d, False) else (0, side)
        for d, (n, side) in enumerate(zip(shape, sides, strict=True))
    )


def _placed(shape: tuple[int, ...], sides: tuple[int, ...], rng: Generator) -> Box:
    lows = [int(rng.integers(0, n - side + 1)) for n, side in zip(shape, sides, strict=True)]
    return tuple((low, low + side) for low, side in zip(lows, sides, strict=True))


def _border(shape: tuple[int, ...], limit: int, dimension: int, end: bool, rng: Generator) -> Box:
    """One element thick, and as long as it may be along the longest other dimension."""
    thin = (*shape[:dimension], 1, *shape[dimension + 1 :])
    longest = max(range(len(shape)), key=thin.__getitem__)
    box = list(_placed(thin, _long_sides(thin, limit, longest), rng))
    place = shape[dimension] - 1 if end else 0
    box[dimension] = (place, place + 1)
    return tuple(box)


def _long_sides(shape: tuple[int, ...], limit: int, dimension: int) -> tuple[int, ...]:
    """Sides of a block of at most `limit` elements that is as long as may be along one dimension,
    and then along the longest of the others."""
    sides = [1] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: (d != dimension, -shape[d])):
        sides[d] = max(1, min(shape[d], limit // prod(sides)))
    return tuple(sides)

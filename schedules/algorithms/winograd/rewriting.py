"""Winograd's convolution: a compute of three taps along an axis becomes one of fewer products.

    weights[f, c, o]   the taps at each of F = (m + 2)^axes points       of constants: at load
    tiles[f, t, c]     the inputs of each tile at the points
    products[f, t, o]  sum over c of tiles[f, t, c] * weights[f, c, o]
    out                from the products of a tile its m^axes outputs, and the epilogue

A tile t stands for all axes that the weights do not have: images and blocks of m positions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from hlotune.schedules.algorithms.winograd.merged_taps import apart
from hlotune.schedules.algorithms.winograd.transforms import (
    TAPS,
    WindowAxis,
    inputs,
    separably,
    transformed,
)
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.borders import is_zero_outside
from hlotune.schedules.ir.compute import Axis, Compute, Digit, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load, loads, map_loads
from hlotune.schedules.ir.monoids import SUM

WEIGHTS, TILES, PRODUCTS = "weights", "tiles", "products"
POINT, TILE = "f", "t"


@dataclass(frozen=True)
class Window:
    """The parts of a convolution that Winograd's algorithm can take."""

    core: Stage
    out: Stage
    image: Expr
    taps: Expr
    pairs: tuple[tuple[Axis, Axis], ...]
    """(position, tap) of each axis of the window."""
    steps: tuple[int, ...]
    """For each of them the positions between neighbours of a tile; more than 1 where dilated."""
    batch: tuple[Axis, ...]
    """Parallel axes that neither taps nor the window have."""
    channels: tuple[Axis, ...]
    """What is left of the reduction."""
    feature: Axis
    """The parallel axis of the taps."""


def winograd(m: int) -> Callable[[Compute], Compute]:
    """The algorithm F(m, 3) along one axis or two, the taps of all others like channels.

    Of a dilated axis each phase of the positions has its own tiles.

    What it returns raises ScheduleError for a compute that is no such convolution.
    """

    def rewritten(compute: Compute) -> Compute:
        w = window(compute)
        if w is None:
            raise ScheduleError(
                f"winograd({m}): expected a convolution of {TAPS} taps along an axis, of stride "
                "1 or dilated by a multiple of its stride, over channels, got another kernel: use "
                "`direct`"
            )
        return _rewritten(compute, w, m)

    return rewritten


def window(compute: Compute) -> Window | None:
    """The parts of a convolution of three taps along an axis; None where it is something else."""
    if len(compute.stages) < 2:
        return None
    core, out = compute.stages[-2:]
    if core.combine is not SUM or len(core.stores) > 1 or out.combine:
        return None
    return _window_of(apart(core, TAPS), out)


def _window_of(core: Stage, out: Stage) -> Window | None:
    factors = _factors(core)
    acc = core.stores[0].tensor
    own = tuple(Affine.axis(a.name) for a in core.parallel)
    read = [x for x in out.loads if x.tensor == acc]
    if factors is None or core.parallel != out.parallel or [x.index for x in read] != [own]:
        return None
    walked = _walked(core, factors[0])
    if walked is None:
        return None
    return _window(core, out, factors, walked)


def _window(
    core: Stage, out: Stage, factors: tuple[Expr, Expr], walked: list[tuple[Axis, Axis, WindowAxis]]
) -> Window | None:
    image, taps = factors
    taken = transformed([facts for _, _, facts in walked])
    pairs = tuple(walked[d][:2] for d in taken)
    of_image, of_taps = _axes(image), _axes(taps)
    windowed = {a.name for pair in pairs for a in pair}
    features = [a for a in core.parallel if a.name in of_taps]
    batch = tuple(a for a in core.parallel if a not in features and a.name not in windowed)
    channels = tuple(r for r in core.reduce if r.name not in windowed)
    shared = all(r.name in of_image and r.name in of_taps for r in core.reduce)
    alone = len(features) == 1 and features[0].name not in of_image
    plain = all(x.divisor(d) == 1 for x in loads(image) for d in range(len(x.index)))
    plain = plain and all(x.beside is None for x in core.loads)
    zero = all(is_zero_outside(core, x) for x in loads(image))
    if not (pairs and channels and shared and alone and plain and zero):
        return None
    steps = tuple(walked[d][2].steps for d in taken)
    return Window(core, out, image, taps, pairs, steps, batch, channels, features[0])


def _factors(core: Stage) -> tuple[Expr, Expr] | None:
    """Image and taps, in this order: of floats of one type that transforms do not spoil."""
    value = core.values[0]
    if not isinstance(value, Apply) or value.op != "multiply" or value.dtype not in ("f32", "f64"):
        return None
    if any(x.dtype != value.dtype for x in loads(value)):
        return None
    positions = {a.name for a in core.parallel}
    a, b = value.args
    counts = [len(_axes(x) & positions) for x in (a, b)]
    return (a, b) if counts[0] >= counts[1] else (b, a)


def _walked(core: Stage, image: Expr) -> list[tuple[Axis, Axis, WindowAxis]] | None:
    """(position, tap, facts) where the two share a dimension of the image.

    None where a tap shares it with several positions, or loads differ in their maps.
    """
    result = list[tuple[Axis, Axis, WindowAxis]]()
    for r in core.reduce:
        found = {
            (p, r, WindowAxis(r.extent, p.extent, *_stride_and_spread(e, p, r), x.divisor(d)))
            for p in core.parallel
            if _meet(image, p, r)
            for x in loads(image)
            for d, e in enumerate(x.index)
            if {p.name, r.name} & {*e.coefficients}
        }
        if len(found) > 1:
            return None
        result += found
    return result


def _meet(image: Expr, p: Axis, r: Axis) -> bool:
    """Whether they walk along one dimension, `r` beyond a step of `p`."""
    maps = [e.coefficients for x in loads(image) for e in x.index]
    return any(p.name in m and r.name in m and not _is_behind(m, p, r) for m in maps)


def _is_behind(m: dict[str, int], p: Axis, r: Axis) -> bool:
    """Whether `r` are channels behind each position of a dimension, which a tap walks as `p` does.

    A map of a convolution has no second tap.
    """
    return m[p.name] == r.extent * m[r.name] and [*m.values()].count(m[p.name]) > 1


def _stride_and_spread(e: Affine, p: Axis, r: Axis) -> tuple[int, int]:
    return e.coefficients.get(p.name, 0), e.coefficients.get(r.name, 0)


def _axes(expr: Expr) -> set[str]:
    return {a for x in loads(expr) for a in x.axes}


def _rewritten(compute: Compute, w: Window, m: int) -> Compute:
    dtype = compute.tensor(w.core.stores[0].tensor).dtype
    digits = _digits(w, m)
    count, tiles = inputs(m) ** len(w.pairs), prod(d.extent for d in digits)
    t, f = Axis(TILE, tiles), Axis(POINT, count)
    depth = tuple(c.extent for c in w.channels)
    tensors = (
        Tensor(WEIGHTS, (count, *depth, w.feature.extent), dtype, "temporary"),
        Tensor(TILES, (count, tiles, *depth), dtype, "temporary"),
        Tensor(PRODUCTS, (count, tiles, w.feature.extent), dtype, "temporary"),
    )
    sums = w.core.stores[0].tensor
    before = compute.stages[:-2]
    stages = (_weights(w, m, dtype), _tiles(w, m, t, digits), _products(w, f, t, dtype))
    kept = tuple(x for x in compute.tensors if x.name != sums)
    return Compute((*kept, *tensors), (*before, *stages, _out(w, m, t, digits, dtype)))


def _digits(w: Window, m: int) -> tuple[Digit, ...]:
    """What a tile's number consists of, the last the fastest: images, then blocks of positions.

    Of dilated windows the positions of each phase are blocks of their own.
    """
    extents = [(a.name, a.extent) for a in w.batch]
    for (p, _), steps in zip(w.pairs, w.steps, strict=True):
        extents += [(_phase(p), steps)] if steps > 1 else []
        extents += [(p.name, ceil(p.extent / (steps * m)))]
    result, below = [], prod(n for _, n in extents)
    for name, n in extents:
        below //= n
        result.append(Digit(name, TILE, below, n))
    return tuple(result)


def _phase(position: Axis) -> str:
    return f"{position.name}s"


def _weights(w: Window, m: int, dtype: str) -> Stage:
    """The stage that transforms the weights, in double precision: for constants that costs nothing,
    and it halves their error.

    From some tens of channels on the rounding of the sums is larger than that of the transform, and
    `Narrow` computes the transform in the type of the weights.
    """
    places = product(range(TAPS), repeat=len(w.pairs))
    taps = [_wide(_placed(w.taps, _window_at(w, ks))) for ks in places]
    axes = (*w.channels, w.feature)
    values = separably("taps", m, taps, len(w.pairs))
    narrow = tuple(Apply("convert", (v,), dtype) if dtype != "f64" else v for v in values)
    return Stage(WEIGHTS, axes, (), _at_points(WEIGHTS, len(narrow), axes), narrow)


def _wide(expr: Expr) -> Expr:
    return expr if expr.dtype == "f64" else Apply("convert", (expr,), "f64")


def _tiles(w: Window, m: int, t: Axis, digits: tuple[Digit, ...]) -> Stage:
    cube = [
        _placed(w.image, _positions(w, m, (0,) * len(w.pairs)) | _window_at(w, ks))
        for ks in product(range(inputs(m)), repeat=len(w.pairs))
    ]
    axes = (t, *w.channels)
    values = tuple(separably("inputs", m, cube, len(w.pairs)))
    return Stage(TILES, axes, (), _at_points(TILES, len(values), axes), values, digits=digits)


def _products(w: Window, f: Axis, t: Axis, dtype: str) -> Stage:
    channels = tuple(Affine.axis(c.name) for c in w.channels)
    point, tile, feature = (Affine.axis(a.name) for a in (f, t, w.feature))
    operands = (
        Load(TILES, (point, tile, *channels), dtype),
        Load(WEIGHTS, (point, *channels, feature), dtype),
    )
    return Stage(
        PRODUCTS,
        (f, t, w.feature),
        w.channels,
        (Store(PRODUCTS, (point, tile, feature)),),
        (Apply("multiply", operands, dtype),),
        SUM,
    )


def _out(w: Window, m: int, t: Axis, digits: tuple[Digit, ...], dtype: str) -> Stage:
    """The outputs of a tile; those beyond the last position are not stored."""
    place = Affine.axis(t.name), Affine.axis(w.feature.name)
    read = [
        Load(PRODUCTS, (Affine((), k), *place), dtype)
        for k in range(inputs(m) ** len(w.pairs))
    ]  # fmt: skip
    sums = separably("outputs", m, read, len(w.pairs))
    acc = next(x for x in w.out.loads if x.tensor == w.core.stores[0].tensor)
    stores, values = [], []
    for ks, value in zip(product(range(m), repeat=len(w.pairs)), sums, strict=True):
        at = _positions(w, m, ks)
        for x, expr in zip(w.out.stores, w.out.values, strict=True):
            stores.append(Store(x.tensor, tuple(e.substitute(at) for e in x.index)))
            changes = {y: y.substitute(at) for y in w.out.loads if y != acc} | {acc: value}
            values.append(map_loads(expr, changes))
    return Stage(w.out.name, (t, w.feature), (), tuple(stores), tuple(values), digits=digits)


def _at_points(tensor: str, count: int, axes: Iterable[Axis]) -> tuple[Store, ...]:
    rest = tuple(Affine.axis(a.name) for a in axes)
    return tuple(Store(tensor, (Affine((), k), *rest)) for k in range(count))


def _positions(w: Window, m: int, offsets: tuple[int, ...]) -> dict[str, Affine]:
    """Where outputs of a tile stand along the axes of the window."""
    result = {}
    for (p, _), steps, k in zip(w.pairs, w.steps, offsets, strict=True):
        result[p.name] = Affine.axis(p.name, steps * m) + steps * k
        if steps > 1:
            result[p.name] += Affine.axis(_phase(p))
    return result


def _window_at(w: Window, taps: tuple[int, ...]) -> dict[str, Affine]:
    return {r.name: Affine((), k) for (_, r), k in zip(w.pairs, taps, strict=True)}


def _placed(expr: Expr, at: dict[str, Affine]) -> Expr:
    return map_loads(expr, {x: x.substitute(at) for x in loads(expr)})

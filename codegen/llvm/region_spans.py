"""What a stage computes inside a loop of another: the part of its axes that is read from there."""

from collections.abc import Mapping, Sequence

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Span, known_size, smaller_of
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.hulls import hull
from hlotune.schedules.ir.nest import LoopNest, StageNest, readers, reads

Spans = Mapping[str, Span]


def region_at(f: Function, nest: LoopNest, s: StageNest, at: StageNest, spans: Spans) -> Spans:
    """Spans of a stage inside a loop of `at`, which stands at its own spans."""
    return _region(f, nest, s, at, {at.stage.name: spans})


def _region(
    f: Function, nest: LoopNest, s: StageNest, at: StageNest, known: dict[str, Spans]
) -> Spans:
    """`known` grows: stages that read one another in a diamond would be asked again for each way
    through it."""
    users = readers(nest, s)
    parts = [_read_part(f, s, user, _seen(f, nest, user, at, known)) for user in users]
    return parts[0] if len(parts) == 1 else {a: _joined([x[a] for x in parts]) for a in parts[0]}


def _seen(
    f: Function, nest: LoopNest, user: StageNest, at: StageNest, known: dict[str, Spans]
) -> Spans:
    """What `user` walks while `at`, itself or a stage around it, stands at its spans."""
    name = user.stage.name if user.at is not None else at.stage.name
    if name not in known:
        known[name] = _region(f, nest, user, at, known)
    return known[name]


def _joined(parts: Sequence[Span]) -> Span:
    """What several readers read along an axis together; none is cut off unless all are alike."""
    low = min((x.low for x in parts), key=lambda e: e.constant)
    if any(x.low.terms != low.terms for x in parts):
        lows = " and ".join(str(x.low) for x in parts)
        raise BuildError(
            f"expected readers that go along an axis alike, got some from {lows} on; "
            "compute what they read further outside"
        )
    end = max(x.low.constant + x.size for x in parts)
    extents = {x.extent for x in parts}
    return Span(low, end - low.constant, extents.pop() if len(extents) == 1 else None)


def _read_part(f: Function, s: StageNest, user: StageNest, seen: Spans) -> Spans:
    """Spans of a producer: the hull of what its user reads over its own, reductions whole.

    A lookup may find any place.
    """
    looked_up = {x.name: Span(Affine(), x.most + 1, x.most + 1) for x in user.stage.lookups}
    seen = {**seen, **looked_up}
    sizes = {root: known_size(f, span) or span.size for root, span in seen.items()}
    needed = hull(s.stage, user.stage, sizes)
    spans = {a.name: Span(Affine(), a.extent, a.extent) for a in s.stage.reduce}
    positions = {root: span.low for root, span in seen.items()}
    found = reads(s.stage, user.stage)
    for d, axis in enumerate(s.stage.stored_axes or ()):
        if axis is None:
            continue
        places = {x.index[d] for x in found}
        index = min(places, key=lambda e: e.constant)
        below = sum(c * (sizes[a] - 1) for a, c in index.terms if c < 0)
        # a copy is cut off by the checks of its loads, which need no aligned tiles
        cut = s.stage.combine is not None and axis not in s.overrun
        same = cut and len(places) == 1 and _is_axis(index)
        extent = seen[index.terms[0][0]].extent if same else None
        spans[axis] = Span(index.substitute(positions) + below, needed[axis], extent)
    return spans


def _is_axis(index: Affine) -> bool:
    return len(index.terms) == 1 and index.terms[0][1] == 1 and not index.constant


def ends_in(f: Function, s: StageNest, spans: Spans) -> dict[str, Affine]:
    """By axis, where loops end that a stage has in a region: at the multiple behind its end there.

    The end is that of the region's last points, and never beyond the axis.
    """
    found = dict[str, Affine]()
    positions = {a: span.low for a, span in spans.items()}
    for axis, multiple in s.ends_at:
        end, extent = dict(s.stage.ends)[axis], s.stage.extents[axis]
        most = end.substitute(positions) + sum(
            c * (spans[a].size - 1) for a, c in end.terms if c > 0
        )
        found[axis] = _rounded(f, most, multiple, extent)
    return found


def _rounded(f: Function, end: Affine, multiple: int, extent: int) -> Affine:
    """The next multiple, at least one and no more than an extent."""
    if not end.terms:
        return Affine((), min(extent, max(1, -(-end.constant // multiple)) * multiple))
    depth, least = f.depth_of(end), max(1, -(-f.bounds(end)[0] // multiple)) * multiple
    steps = f.hoisted(depth, f"udiv i64 {f.integer(end + (multiple - 1))}, {multiple}")
    whole = f.hoisted(depth, f"mul nsw i64 {steps}, {multiple}")
    most = -(-f.bounds(end)[1] // multiple) * multiple
    position = f.variable(whole, (min(least, most), most), multiple=multiple, depth=depth)
    return smaller_of(f, position, Affine((), extent))

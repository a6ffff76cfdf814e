"""Where in memory an element lies: offsets by layout, pointers, the choice of a zero instead."""

from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Lane
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.expr import Affine

ZERO_PAGE_BYTES = 1 << 16
ZEROS = "@zeros"


def elements(f: Function, place: Place, index: list[Affine]) -> Affine:
    """Elements between the start of a buffer and an element of it."""
    parts = list[tuple[Affine, int]]()
    for d, e in enumerate(index):
        parts += _along(f, place, d, e)
    return Affine.weighted(parts)


def _along(f: Function, place: Place, d: int, e: Affine) -> tuple[tuple[Affine, int], ...]:
    """What a position along one dimension adds: affines, each times a factor."""
    local, inner, block = e - place.origin[d], place.strides[d, 1], place.blocks.get(d)
    if block is None:
        return ((local, inner),)
    outer = place.strides[d, block]
    # what is left free between blocks need not be as many elements as they go in steps of
    if not f.multiple_of(local, block) or (local.terms and outer % block):
        return ((_blocked(f, local, block, outer, inner), 1),)
    whole, rest = divmod(local.constant, block)
    constant = Affine((), whole * outer + rest * inner)
    return (Affine(local.terms), outer // block), (constant, 1)


def _blocked(f: Function, local: Affine, block: int, outer: int, inner: int) -> Affine:
    depth, (_, high), text = f.depth_of(local), f.bounds(local), f.integer(local)
    quotient = f.hoisted(depth, f"udiv i64 {text}, {block}")
    number = f.variable(quotient, (0, high // block), depth=depth)
    remainder = f.hoisted(depth, f"urem i64 {text}, {block}")
    rest = f.variable(remainder, (0, block - 1), depth=depth)
    return number * outer + rest * inner


def quotient(f: Function, e: Affine, divisor: int) -> Affine:
    if divisor == 1:
        return e
    if not e.terms:
        return Affine((), e.constant // divisor)
    low, high = f.bounds(e)
    name = f.hoisted(f.depth_of(e), f"sdiv i64 {f.integer(e)}, {divisor}")
    return f.variable(name, (low // divisor, high // divisor), depth=f.depth_of(e))


def lane_steps(index: tuple[Affine, ...], lane: Lane | None) -> list[int]:
    return [e.coefficients.get(lane.root, 0) if lane else 0 for e in index]


def lane_stride(
    f: Function, place: Place, index: list[Affine], steps: list[int], lane: Lane
) -> int:
    """Elements of memory between neighbouring lanes, which must lie in one block."""
    blocks = place.blocks
    for d in (d for d, c in enumerate(steps) if c and d in blocks):
        first = index[d] - place.origin[d]
        starts = f.multiple_of(first, lane.lanes) and first.constant % lane.lanes == 0
        if steps[d] != 1 or blocks[d] % lane.lanes or not starts:
            raise BuildError(
                f"vectors of {lane.lanes} do not lie inside blocks of {blocks[d]}: "
                "pack whole vectors"
            )
    return sum(c * place.strides[d, 1] for d, c in enumerate(steps) if c)


def pointer_to(f: Function, place: Place, index: list[Affine]) -> str:
    offset = elements(f, place, index) * BYTES[place.dtype]
    pointer, _ = f.pointer(place.base, offset)
    return plus(f, pointer, offset.constant)


def plus(f: Function, pointer: str, constant: int) -> str:
    """A pointer a few bytes further on."""
    if not constant:
        return pointer
    return f.once(f"getelementptr inbounds i8, ptr {pointer}, i64 {constant}")


def chosen_pointer(
    f: Function,
    place: Place,
    index: list[Affine],
    checks: list[int],
    condition: str,
    depth: int,
    size: int,
) -> str:
    """The element where the condition holds, else a zero.

    It is chosen outside the loops on which the condition does not hang.
    """
    before, after = _around_choice(f, place, index, checks, depth)
    low, high = f.bounds(after)
    if low < 0 or high + size > ZERO_PAGE_BYTES:
        # what is constant stays behind, for neighbours to share the choice
        kept = after.constant if 0 <= after.constant <= ZERO_PAGE_BYTES - size else 0
        before, after = before + after + -kept, Affine((), kept)
    f.module.declare(
        ZEROS, f"{ZEROS} = internal global [{ZERO_PAGE_BYTES} x i8] zeroinitializer, align 64"
    )
    pointer, at = f.pointer(place.base, before)
    at = max(at, depth)
    if before.constant:
        pointer = f.hoisted(at, f"getelementptr i8, ptr {pointer}, i64 {before.constant}")
    chosen = f.hoisted(at, f"select i1 {condition}, ptr {pointer}, ptr {ZEROS}")
    pointer, _ = f.pointer(chosen, after, at)
    return plus(f, pointer, after.constant)


def _around_choice(
    f: Function, place: Place, index: list[Affine], checks: list[int], depth: int
) -> tuple[Affine, Affine]:
    """Bytes of an offset to add before a pointer is chosen at a loop depth, and bytes for after."""
    before, after = Affine(), Affine()
    for d, e in enumerate(index):
        part = Affine.weighted(_along(f, place, d, e)) * BYTES[place.dtype]
        checked = d in checks
        outer = {n: c for n, c in part.terms if checked or f.variables[n].depth <= depth or c < 0}
        inner = {n: c for n, c in part.terms if n not in outer}
        free = not checked and part.constant >= 0
        before = before + Affine.of(outer, 0 if free else part.constant)
        after = after + Affine.of(inner, part.constant if free else 0)
    return before, after

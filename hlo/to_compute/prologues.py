"""Expressions moved between domains: into stages of their own, or to a contraction's places."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hlotune.hlo.to_compute.contractions import Place
from hlotune.schedules.ir.expr import (
    Affine,
    Apply,
    Const,
    Expr,
    Given,
    Load,
    distinct_operations,
    loads,
    map_loads,
)
from hlotune.schedules.ir.operations import row_of


def varying(expr: Expr) -> frozenset[str]:
    """The axes along which an expression varies."""
    return frozenset(a for load in loads(expr) for a in load.axes)


def hoisted(expr: Expr, axes: frozenset[str], save: Callable[[Expr, frozenset[str]], Load]) -> Expr:
    """The expression with every part that varies along some of `axes` only saved, and loaded.

    Parts without arithmetic stay, and so do parts that vary along no axis at all.  What the
    expression shares, one object in several places, the result shares too.
    """
    known: dict[int, Expr] = {}

    def walked(part: Expr) -> Expr:
        if not isinstance(part, Apply):
            return part
        if id(part) not in known:
            used = varying(part) & axes
            if used and used != axes and distinct_operations((part,)):
                known[id(part)] = save(part, used)
            else:
                known[id(part)] = Apply(part.op, tuple(map(walked, part.args)), part.dtype)
        return known[id(part)]

    return walked(expr)


def vanishes(expr: Expr, padded: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the value is 0 wherever an axis of `padded` leaves its extent.

    A load is when each of these axes alone walks through a whole dimension of its tensor.
    """

    def outside(load: Load) -> float | None:
        walked = dict(zip(load.index, shapes[load.tensor], strict=True))
        return 0.0 if all(walked.get(Affine.axis(a)) == n for a, n in padded.items()) else None

    return _known(expr, outside) == 0


def is_zero_of_zeros(expr: Expr) -> bool:
    """Whether the value is 0 for certain where all loads are real nowhere: relu, casts, products.

    No part of it may be infinite or undefined then, for 0 times that is no 0.
    """

    def certain(e: Expr) -> float | None:
        return _known(e, lambda x: None if x.outside else 0.0)

    def defined(e: Expr) -> bool:
        value, args = certain(e), e.args if isinstance(e, Apply) else ()
        finite = value is not None and math.isfinite(value)
        bounded = isinstance(e, Apply) and row_of(e.op).bounded
        return (finite or bounded) and all(defined(a) for a in args if a.dtype != "i1")

    return certain(expr) == 0 and defined(expr)


def _known(expr: Expr, known: Callable[[Load], float | None]) -> float | None:
    """The value of an expression where that is certain from the loads of known value."""
    if isinstance(expr, Const):
        return float(expr.value)
    if isinstance(expr, Load):
        return known(expr)
    if isinstance(expr, Given):
        return None
    args = [_known(a, known) for a in expr.args]
    if expr.op in ("multiply", "and") and 0 in args:
        return 0.0
    if expr.op == "select":
        return args[1] if args[1] == args[2] else None
    certain = [a for a in args if a is not None]
    if len(certain) < len(args):
        return None
    row = row_of(expr.op)
    if row.zero_at_zero:
        return 0.0 if certain[0] == 0 else None
    return row.fold(*certain) if row.fold else None


def walks_alone(expr: Expr, axis: str) -> bool:
    """Whether every load that depends on the axis has it as the whole index of one dimension."""
    return all(
        e == Affine.axis(axis) for load in loads(expr) for e in load.index if axis in e.coefficients
    )


def placed(expr: Expr, places: Mapping[str, Place]) -> Expr:
    """The expression with every axis put at its place."""
    affine = {axis: place.index for axis, place in places.items()}

    def moved(load: Load) -> Load:
        firsts = (e.terms[0][0] if e.terms else "" for e in load.index)
        found = [places[a].divisor if a in places else 1 for a in firsts]
        divisors = tuple(n * load.divisor(d) for d, n in enumerate(found))
        kept = divisors if any(d > 1 for d in divisors) else ()
        return replace(load.substitute(affine), divisors=kept)

    return map_loads(expr, {load: moved(load) for load in loads(expr)})

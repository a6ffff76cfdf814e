"""What groups of elementwise operations and reductions are called: `softmax`, `add+relu`, `sum`."""

from collections.abc import Callable
from dataclasses import dataclass

from hlotune.hlo.graph import Graph
from hlotune.hlo.sites.fusible import REDUCTIONS, SCATTER
from hlotune.hlo.sites.fusion import levels
from hlotune.hlo.sites.region import Group, Region
from hlotune.hlo.to_compute.cumulative import WINDOW, cumulative
from hlotune.hlo.to_compute.reductions import name_of_region, plain_operation

SUMS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
"""Names of reductions by the one operation of their regions."""
CUMULATIVE = {name: f"cum{short}" for name, short in SUMS.items()}
"""The same where every prefix is a result."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a group is recognised by."""

    reductions: tuple[str, ...]
    """The names of the reductions, in the order of the program."""
    depth: int
    """How many of them follow one another."""
    operations: frozenset[str]
    """Short names of the others."""
    behind: frozenset[str]
    """The operations that wait for all reductions."""
    is_full: bool
    """Whether a result is as large as what is reduced."""


def shape_of(region: Region, group: Group) -> Shape:
    graph, level = region.graph, levels(region.graph, group.members)
    reductions = [m for m in sorted(group.members) if graph.ops[m].name in REDUCTIONS]
    others = [m for m in sorted(group.members) if graph.ops[m].name not in REDUCTIONS]
    largest = max((region.type(graph.ops[m].operands[0]).elements for m in reductions), default=0)
    depth = 1 + max((level[m] for m in reductions), default=-1)
    behind = [m for m in others if level[m] == depth]
    sizes = [region.type(graph.ops[m].results[0]).elements for m in behind]
    return Shape(
        reductions=tuple(reduction_name(region, m) for m in reductions),
        depth=depth,
        operations=frozenset(_operation(region, m) for m in others),
        behind=frozenset(short(region, m) for m in behind),
        is_full=any(n >= largest for n in sizes),
    )


def short(region: Region, member: int) -> str:
    return region.graph.ops[member].name.partition(".")[2]


def _operation(region: Region, member: int) -> str:
    """The short name; that of a square where a value is multiplied with itself."""
    name, operands = short(region, member), region.graph.ops[member].operands
    return "square" if name == "multiply" and operands[0] == operands[1] else name


def reduction_name(region: Region, member: int) -> str:
    op = region.graph.ops[member]
    if op.name == SCATTER:
        return "pool gradient"
    plain = plain_operation(op.regions[0])
    if cumulative(region.graph, op):
        other = "cumlogsumexp" if _is_logsumexp(op.regions[0]) else "scan"
        return CUMULATIVE.get(plain or "", other)
    name = name_of_region(op.regions[0]) if plain is None else SUMS.get(plain, plain)
    return f"{name} pool" if op.name == WINDOW else name


def _is_logsumexp(inner: Graph) -> bool:
    return any(op.name == "stablehlo.log_plus_one" for op in inner.ops)


def _softmax(s: Shape) -> bool:
    return _shifted(s) and s.is_full and "divide" in s.behind


def _log_softmax(s: Shape) -> bool:
    return _shifted(s) and s.is_full and "log" in s.behind


def _logsumexp(s: Shape) -> bool:
    return _shifted(s) and not s.is_full and "log" in s.behind


def _shifted(s: Shape) -> bool:
    """Sums of exponentials of what is less than a maximum."""
    return s.reductions == ("max", "sum") and s.depth == 2 and "exponential" in s.operations


def _layer_norm(s: Shape) -> bool:
    return s.reductions == ("sum", "sum") and s.is_full and _roots(s) and _squares(s)


def _rms_norm(s: Shape) -> bool:
    return s.reductions == ("sum",) and s.is_full and _roots(s) and _squares(s)


def _variance(s: Shape) -> bool:
    return s.reductions == ("sum", "sum") and s.depth == 2 and not s.is_full and _squares(s)


def _mean(s: Shape) -> bool:
    return s.reductions == ("sum",) and not s.is_full and s.operations in ({"divide"}, MEAN)


def _average_pool(s: Shape) -> bool:
    return set(s.reductions) == {"sum pool"} and s.operations in ({"divide"}, MEAN)


def _roots(s: Shape) -> bool:
    return not {"rsqrt", "sqrt"}.isdisjoint(s.operations)


def _squares(s: Shape) -> bool:
    return not {"square", "power"}.isdisjoint(s.operations)


MEAN = {"divide", "convert"}
NAMED: dict[str, Callable[[Shape], bool]] = {
    "softmax": _softmax,
    "log-softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "layer norm": _layer_norm,
    "RMS norm": _rms_norm,
    "variance": _variance,
    "mean": _mean,
    "average pool": _average_pool,
}
"""The first that holds is the name."""


def pattern_name(region: Region, group: Group) -> str | None:
    """The field's name of a group, or None where it has none."""
    shape = shape_of(region, group)
    return next((name for name, holds in NAMED.items() if holds(shape)), None)

"""Computes that are attention: two products, and between them a softmax or any other row operation.

    scores[b, t, s] = sum over d of q[b, t, d] * k[b, s, d]
    ...               stages over (b, t, s) and (b, t), such as those of a softmax over s
    values[b, t, f] = sum over s of weights[b, t, s] * v[b, s, f]
    out               at most one last stage, over the axes of the values

Axes that `k` or `v` has are *batch* axes, all others of the scores but `s` are *rows*: queries, and
the heads of a group that share keys.  The longest of the rows is `t`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load
from hlotune.schedules.ir.monoids import SUM

Roles = Mapping[str, str]
"""The axes of a stage -> the axis of the scores or of the values that it walks along."""
SCORES, VALUES, OUT = "scores", "values", "out"
"""What an attention's stages are called by the algorithm that rewrites it."""
ROW, KEY, DEPTH, FEATURE = "t", "s", "d", "f"
"""Its axes of queries, keys, the sum of the first product, and the results of the second."""


@dataclass(frozen=True)
class Attention:
    """The stages of an attention, and what the axes of each stand for.

    Roles are `b0 b1 ...` for batch axes, `g0 g1 ...` for further rows, and those named above.
    """

    scores: Stage
    between: tuple[Stage, ...]
    """Stages that wait for the scores and that the values wait for."""
    values: Stage
    out: Stage | None
    aside: tuple[Stage, ...]
    """Stages that do not wait for the scores."""
    roles: Mapping[str, Roles]
    """By stage."""
    keys: Load
    """What the scores read along the keys."""
    read: Load
    """What the values read that is no result of a stage in between."""
    weights: Load


def is_attention(compute: Compute) -> bool:
    if sum(_is_product(s) for s in compute.stages) != 2:
        return False
    try:
        attention(compute)
    except UnsupportedKernel:
        return False
    return True


@lru_cache(maxsize=256)
def attention(compute: Compute) -> Attention:
    """The parts of an attention.  Raises UnsupportedKernel where a compute is none."""
    products = [s for s in compute.stages if _is_product(s)]
    _require(len(products) == 2, f"two products, got {len(products)}")
    scores, values = products
    waiting = _waiting(compute, scores)
    behind = [s for s in waiting if compute.stages.index(s) > compute.stages.index(values)]
    between = tuple(s for s in waiting if s not in (scores, values, *behind))
    aside = tuple(s for s in compute.stages if s not in waiting)
    _require(values in waiting, "a second product that reads what the first one makes")
    _require(len(behind) <= 1, f"one stage behind the products, got {len(behind)}")
    results = {t.name for t in compute.results}
    stored = {x.tensor for s in (scores, *between, *aside) for x in s.stores}
    _require(not results & stored, "results of the last stage alone")
    made = {x.tensor for s in between for x in s.stores}
    weights = [x for x in values.loads if x.tensor in made]
    read = [x for x in values.loads if x.tensor not in made]
    _require(len(weights) == len(read) == 1, "a second product of weights and values")
    out = behind[0] if behind else None
    roles = _roles(compute, scores, (*between, values, *behind), weights[0], read[0])
    keys = next((x for x in scores.loads if _walks(x, scores, roles, KEY)), None)
    _require(keys is not None, "a first product that reads keys")
    assert keys is not None
    return Attention(scores, between, values, out, aside, roles, keys, read[0], weights[0])


def _require(holds: bool, expected: str) -> None:
    if not holds:
        raise UnsupportedKernel(
            f"expected attention with {expected}; the kernel stays with the default compiler"
        )


def _is_product(stage: Stage) -> bool:
    return factors(stage) is not None


def factors(stage: Stage) -> tuple[Load, Load] | None:
    """The loads that a stage sums the products of, if that is all it does."""
    if stage.combine is not SUM or len(stage.values) != 1:
        return None
    value = stage.values[0]
    if not isinstance(value, Apply) or value.op != "multiply":
        return None
    a, b = map(_unconverted, value.args)
    if not isinstance(a, Load) or not isinstance(b, Load) or a == b:
        return None
    return (a, b) if a.beside is None and b.beside is None else None


def _unconverted(expr: Expr) -> Expr:
    while isinstance(expr, Apply) and expr.op == "convert":
        expr = expr.args[0]
    return expr


def _waiting(compute: Compute, first: Stage) -> list[Stage]:
    """A stage and those that wait for it, in order."""
    made, found = set(first.stored), [first]
    for stage in compute.stages:
        if stage is not first and made & set(stage.maps):
            made |= stage.stored
            found.append(stage)
    return found


def _roles(
    compute: Compute, scores: Stage, later: Sequence[Stage], weights: Load, read: Load
) -> Mapping[str, Roles]:
    """The roles of the axes of all stages from the scores on."""
    names = {a.name: a.name for a in scores.parallel}
    found: dict[str, Roles] = {scores.name: names}
    along: dict[str, tuple[str, ...]] = {}
    _store_along(scores, names, along)
    values = next(s for s in later if weights in s.loads)
    for stage in later:
        own = _followed(stage, along)
        if stage is values:
            features = [a.name for a in stage.parallel if a.name not in own]
            own |= dict.fromkeys(features, FEATURE)
            _require(len(features) == len(stage.reduce) == 1, "one axis of features and of keys")
        _require(set(own) == {a.name for a in stage.axes}, f"axes of the scores in {stage.name}")
        found[stage.name] = own
        _store_along(stage, own, along)
    key = found[values.name][values.reduce[0].name]
    _require(len(scores.reduce) == 1, "one axis that the first product sums over")
    final = _final(scores, key, found[values.name], read)
    final |= {FEATURE: FEATURE}
    roles = {s: {a: final[r] for a, r in own.items()} for s, own in found.items()}
    roles[scores.name] = {**roles[scores.name], scores.reduce[0].name: DEPTH}
    return roles


def _final(scores: Stage, key: str, of_values: Roles, read: Load) -> dict[str, str]:
    """The role of each axis of the scores."""
    loads = [x for x in scores.loads if key in x.axes]
    _require(len(loads) == 1, "keys that one operand of the first product has")
    batch = {a for a in loads[0].axes} | {of_values[a] for a in read.axes}
    rows = [a for a in scores.parallel if a.name not in batch]
    longest = max(rows, key=lambda a: a.extent, default=None)
    found, counts = {key: KEY}, {"b": 0, "g": 0}
    for a in scores.parallel:
        if a.name == key:
            continue
        if a is longest:
            found[a.name] = ROW
            continue
        kind = "b" if a.name in batch else "g"
        found[a.name] = f"{kind}{counts[kind]}"
        counts[kind] += 1
    return found


def _followed(stage: Stage, along: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The axes of a stage by what they walk along in tensors whose dimensions are known."""
    own: dict[str, str] = {}
    for x in stage.loads:
        if x.tensor not in along:
            continue
        for place, role in zip(x.index, along[x.tensor], strict=True):
            alone = len(place.terms) == 1 and place == Affine.axis(place.terms[0][0])
            _require(alone, f"whole rows read by {stage.name}")
            axis = place.terms[0][0]
            _require(own.setdefault(axis, role) == role, f"one axis for each in {stage.name}")
    return own


def _store_along(stage: Stage, own: Roles, along: dict[str, tuple[str, ...]]) -> None:
    for x in stage.stores:
        if all(len(e.terms) == 1 and e == Affine.axis(e.terms[0][0]) for e in x.index):
            along[x.tensor] = tuple(own[e.terms[0][0]] for e in x.index)


def _walks(load: Load, stage: Stage, roles: Mapping[str, Roles], role: str) -> bool:
    return any(roles[stage.name][a] == role for a in load.axes)

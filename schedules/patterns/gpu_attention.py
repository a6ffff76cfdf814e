"""Attention, recognised as the kernel that GPUs have schedules for.

    weights[b, t, s] = exp(scores * scale - largest of the row) / sum of the row
    values[b, t, f] = sum over s of weights[b, t, s] * v[b, s, f]

A causal mask, which removes the scores of exactly the keys after the query, is told from other
ones; all else that is made of the scores, as by a bias or a mask that is an argument, is a tail.
Heads may share keys.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, distinct_loads
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.ir.split_stored import digits
from hlotune.schedules.patterns.attention import DEPTH, FEATURE, KEY, ROW, Attention, attention
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuAttention
from hlotune.schedules.patterns.gpu_operations import require_known
from hlotune.schedules.patterns.gpu_tails import Tail
from hlotune.schedules.patterns.inlined import LEFT_ALONE, PLACES, Interned, inlined

LOW = -1e9
"""A constant at or below this counts as the score of a masked key."""


@dataclass(frozen=True, slots=True)
class Walked:
    """How a kernel reads a tensor: sliced, then split into axes, then with these reordered."""

    tensor: str
    slices: tuple[tuple[int, int], ...]
    """For each dimension of the tensor: the first place read, and the place behind the last."""
    view: tuple[int, ...]
    """The extents of the axes, in the order in which they lie in memory."""
    order: tuple[int, ...]
    """The axes in the kernel's order; each is given by its position in `view`."""


@dataclass(frozen=True, slots=True)
class AttentionForm:
    kernel: GpuAttention
    queries: Walked
    keys: Walked
    values: Walked
    result: Walked
    """The result; its `view` is the shape of the kernel's result, its `order` the compute's."""


def gpu_attention(compute: Compute) -> AttentionForm:
    """Recognises a compute as attention.

    Raises UnsupportedKernel where it is not an attention that GPUs have a kernel for.
    """
    return _Recognised(compute, attention(compute)).form()


def _require(holds: bool, expected: str, got: object) -> None:
    if not holds:
        raise UnsupportedKernel(f"expected {expected}, got {got}: {LEFT_ALONE}")


@dataclass(frozen=True, slots=True)
class _Scores:
    """What is made of the scores ahead of the softmax."""

    scale: float
    causal: bool
    tail: Tail | None = None


class _Recognised:
    def __init__(self, compute: Compute, view: Attention) -> None:
        self.compute, self.view = compute, view
        self.interned = Interned()
        names = (view.scores, *view.between, view.values, *([view.out] if view.out else []))
        own = {s.name for s in names}
        self.stages = {s.name: self._renamed(s) for s in inlined(compute) if s.name in own}
        self.extents = {
            role: s.extents[axis] for s in names for axis, role in view.roles[s.name].items()
        }
        self.extents.setdefault(ROW, 1)  # one query has no axis
        self.batch = sorted(r for r in self.extents if r.startswith("b"))
        self.sharing = sorted(r for r in self.extents if r.startswith("g"))
        self.heads = (*self.batch, *self.sharing)
        self.rows = [self.stages[s.name] for s in view.between if s.name in self.stages]

    def form(self) -> AttentionForm:
        made = self._softmax()
        queries = next(x for x in self.view.scores.loads if x is not self.view.keys)
        loads = (queries, self.view.keys, self.view.read)
        stages = (self.view.scores, self.view.scores, self.view.values)
        element = self._element(loads)
        axes = (*self.heads, ROW, DEPTH), (*self.batch, KEY, DEPTH), (*self.batch, KEY, FEATURE)
        q, k, v = (self._walked(*each) for each in zip(loads, stages, axes, strict=True))
        e = self.extents
        kernel = GpuAttention(
            heads=prod(e[a] for a in self.heads),
            queries=e[ROW],
            keys=e[KEY],
            depth=e[DEPTH],
            causal=made.causal,
            element=element,
            scale=made.scale,
            group=prod(e[a] for a in self.sharing),
            value_depth=None if e[DEPTH] == e[FEATURE] else e[FEATURE],
            scores=made.tail,
        )
        return AttentionForm(kernel, q, k, v, self._result())

    def _renamed(self, s: Stage) -> Stage:
        """The stage, with each axis in its expressions replaced by the role of that axis."""
        places = {a: Affine.axis(role) for a, role in self.view.roles[s.name].items()}
        known = dict[int, Expr]()

        def renamed(e: Expr) -> Expr:
            if id(e) not in known:
                match e:
                    case Load():
                        made: Expr = e.substitute(places)
                    case Apply():
                        made = Apply(e.op, tuple(map(renamed, e.args)), e.dtype)
                    case _:
                        made = e
                known[id(e)] = self.interned.of(made)
            return known[id(e)]

        values = tuple(renamed(v) for v in s.values)
        return Stage(s.name, s.parallel, s.reduce, s.stores, values, s.combine)

    def _softmax(self) -> "_Scores":
        """What the softmax is taken of."""
        largest = [s for s in self.rows if s.combine is MAX]
        sums = [s for s in self.rows if s.combine is SUM]
        alone = len(largest) == len(sums) == 1 and len(self.rows) == 2
        _require(alone, "a softmax", [s.name for s in self.rows])
        of_row = {x.tensor: s for s in (*largest, *sums) for x in s.stores}
        weights, divided = self._weights(), self._out()
        is_sum = _reads(of_row, sums[0])
        if isinstance(weights, Apply) and weights.op == "divide":
            _require(is_sum(_bare(weights.args[1])), "weights over their sum", weights.args[1])
            weights = _bare(weights.args[0])
            _require(divided is None, "results as they are", divided)
        else:
            _require(divided is not None and is_sum(divided), "results over a sum", divided)
        match weights, _bare(sums[0].values[0]):
            case Apply("exponential", (inside,)), summed if summed is weights:
                scores = self._less_largest(_bare(inside), _reads(of_row, largest[0]))
                _require(scores is _bare(largest[0].values[0]), "the largest score", largest[0])
                return self._scaled(scores) or self._general(scores)
        raise UnsupportedKernel(f"expected exponentials of scores, got {weights}: {LEFT_ALONE}")

    def _weights(self) -> Expr:
        """The expression that the values are multiplied by: the weights."""
        product = self.stages[self.view.values.name].values[0]
        assert isinstance(product, Apply)
        read = self.view.read.tensor
        others = [a for a in map(_bare, product.args) if not _is_load(a, read)]
        _require(len(others) == 1, "weights and values", product)
        return others[0]

    def _out(self) -> Expr | None:
        """The divisor of the results, without conversions; None where they are not divided."""
        if self.view.out is None:
            return None
        made = {x.tensor for x in self.view.values.stores}
        value = _bare(self.stages[self.view.out.name].values[0])
        divisor = None
        if isinstance(value, Apply) and value.op == "divide":
            value, divisor = map(_bare, value.args)
        _require(isinstance(value, Load) and value.tensor in made, "results as they are", value)
        return divisor

    @staticmethod
    def _less_largest(inside: Expr, is_largest: Callable[[Expr], bool]) -> Expr:
        _require(
            isinstance(inside, Apply) and inside.op == "subtract",
            "scores less the largest",
            inside,
        )
        assert isinstance(inside, Apply)
        scores, largest = map(_bare, inside.args)
        if isinstance(largest, Apply) and largest.op == "maximum":
            kept = [a for a in map(_bare, largest.args) if not _is_low(a)]
            largest = kept[0] if len(kept) == 1 else largest
        _require(is_largest(largest), "scores less the largest", largest)
        return scores

    def _scaled(self, scores: Expr) -> "_Scores | None":
        """Scores with no more than a constant factor and a causal mask; None for others."""
        causal = False
        if isinstance(scores, Apply) and scores.op == "select":
            mask, kept, low = scores.args
            if not (_is_low(_bare(low)) and _is_causal(mask)):
                return None
            scores, causal = _bare(kept), True
        made = {x.tensor for x in self.view.scores.stores}
        match scores:
            case Load() if scores.tensor in made:
                return _Scores(1.0, causal)
            case Apply("multiply" | "divide" as op, (a, b)):
                left, right = _bare(a), _bare(b)
                if op == "multiply" and isinstance(left, Const):
                    left, right = right, left
                factor = _number(right)
                if isinstance(left, Load) and left.tensor in made and factor:
                    return _Scores(factor if op == "multiply" else 1 / factor, causal)
        return None

    def _general(self, scores: Expr) -> "_Scores":
        """Any expression over a score and other tensors, at one point.

        Raises UnsupportedKernel where it reads a score of another point, or another stage's result.
        """
        (own,) = self.view.scores.stores
        here = {a: Affine.axis(r) for a, r in self.view.roles[self.view.scores.name].items()}
        point = tuple(e.substitute(here) for e in own.index)
        loads = [x for x in distinct_loads((scores,)) if x.tensor != PLACES]
        read = {x.tensor for x in loads} - {own.tensor}
        tensors = tuple(t for t in self.compute.arguments if t.name in read)
        _require(len(tensors) == len(read), "scores made of arguments", sorted(read))
        at_point = all(tuple(x.index) == point for x in loads if x.tensor == own.tensor)
        _require(at_point, "scores at the point of each", scores)
        require_known(tensors, (scores,))
        axes = tuple(Axis(a, self.extents[a]) for a in (*self.heads, ROW, KEY))
        return _Scores(1.0, False, Tail(scores, own.tensor, axes, len(axes) - 1, tensors, "f32"))

    def _element(self, loads: Sequence[Load]) -> str:
        types = {self.compute.tensor(x.tensor).dtype for x in loads}
        known = len(types) == 1 and types <= set(ELEMENT_BYTES)
        _require(known, f"operands of one type of {', '.join(ELEMENT_BYTES)}", sorted(types))
        roles = {self.compute.tensor(x.tensor).role for x in loads}
        _require(roles <= {"argument", "constant"}, "operands that are arguments", loads)
        return types.pop()

    def _walked(self, load: Load, s: Stage, axes: Sequence[str]) -> Walked:
        _require(not any(x != 1 for x in load.divisors), "whole operands", load)
        roles = self.view.roles[s.name]
        index = tuple(
            e.substitute({a: Affine.axis(r) for a, r in roles.items()}) for e in load.index
        )
        return self._parts(load.tensor, index, axes)

    def _parts(self, tensor: str, index: Sequence[Affine], axes: Sequence[str]) -> Walked:
        shape, slices, found = self.compute.tensor(tensor).shape, [], list[str]()
        for e, extent in zip(index, shape, strict=True):
            own = digits(e, self.extents)
            _require(own is not None, "dimensions that axes walk along in order", e)
            found += own or ()
            length = prod(self.extents[a] for a in own or ())
            slices.append((e.constant, e.constant + length))
            _require(e.constant >= 0 and slices[-1][1] <= extent, "operands without borders", e)
        found += [a for a in axes if a not in found and self.extents[a] == 1]
        _require(sorted(found) == sorted(axes), f"operands along {' '.join(axes)}", found)
        view = tuple(self.extents[a] for a in found)
        return Walked(tensor, tuple(slices), view, tuple(found.index(a) for a in axes))

    def _result(self) -> Walked:
        last = self.view.out or self.view.values
        _require(len(last.stores) == 1, "one result", last.name)
        roles = {a: Affine.axis(r) for a, r in self.view.roles[last.name].items()}
        index = tuple(e.substitute(roles) for e in last.stores[0].index)
        axes = (*self.heads, ROW, FEATURE)
        there = self._parts(last.stores[0].tensor, index, axes)
        whole = tuple((0, n) for n in self.compute.tensor(there.tensor).shape)
        _require(there.slices == whole, "a result that is stored whole", there)
        back = tuple(there.order.index(d) for d in range(len(axes)))
        return Walked(there.tensor, whole, tuple(self.extents[a] for a in axes), back)


def _bare(e: Expr) -> Expr:
    """The expression without conversions between floats, since kernels compute in f32."""
    while isinstance(e, Apply) and e.op == "convert" and e.dtype in ELEMENT_BYTES:
        e = e.args[0]
    return e


def _number(e: Expr) -> float | None:
    """The value of a constant, or of the square root of a constant; None for others."""
    match e:
        case Const():
            return float(e.value)
        case Apply("sqrt", (Const() as of,)) if of.value >= 0:
            return sqrt(of.value)
    return None


def _is_load(e: Expr, tensor: str) -> bool:
    return isinstance(e, Load) and e.tensor == tensor


def _reads(of_row: Mapping[str, Stage], stage: Stage) -> Callable[[Expr], bool]:
    return lambda e: isinstance(e, Load) and of_row.get(e.tensor) is stage


def _is_low(e: Expr) -> bool:
    return isinstance(e, Const) and e.dtype in ELEMENT_BYTES and float(e.value) <= LOW


def _is_causal(e: Expr) -> bool:
    """Whether a mask is true exactly for the keys up to the query."""
    match e:
        case Apply("compare_GE", (a, b)):
            return _is_place(a, ROW) and _is_place(b, KEY)
        case Apply("compare_LE", (a, b)):
            return _is_place(b, ROW) and _is_place(a, KEY)
        case Apply("and", (a, b)):
            return any(_is_causal(x) and _is_true(y) for x, y in ((a, b), (b, a)))
    return False


def _is_place(e: Expr, role: str) -> bool:
    """Whether an expression is the position along the axis of this role, counted from 0."""
    return _counted(e) == Affine.axis(role)


def _counted(e: Expr) -> Affine | None:
    match e:
        case Load() if e.tensor == PLACES:
            return e.index[0]
        case Const() if e.dtype in ("i32", "i64"):
            return Affine((), int(e.value))
        case Apply("convert", (a,)):
            return _counted(a)
        case Apply("add", (a, b)):
            left, right = _counted(a), _counted(b)
            return None if left is None or right is None else left + right
    return None


def _is_true(e: Expr) -> bool:
    return isinstance(e, Const) and e.dtype == "i1" and bool(e.value)

"""Attention whose masks leave a triangle of the scores: where its loops over keys may end.

    weights = softmax(where(s <= t + offset, scores, low))   ->   keys from t + offset + 1 on add
                                                                   nothing to a row

A row's largest score is none of those masked as long as its first key is not masked, and the scores
are no masked ones themselves: then the exponential of what is masked, less it, is zero.  So a mask
of another kind beside this one, or a bias, keeps all keys: a row may have nothing else left.
"""

from collections.abc import Mapping
from dataclasses import replace

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, loads
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.ir.number_tables import MOST_NUMBERS, NumberTables
from hlotune.schedules.patterns.attention import KEY, ROW, Attention, attention

LOW = -1e9
"""Scores are above this: a masked one, at most so large, is none of them."""
FLIPPED = {"GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT"}


def with_ends(compute: Compute) -> Compute:
    """The compute, with the ends of its stages where it is attention under a triangular mask."""
    try:
        view = attention(compute)
    except UnsupportedKernel:
        return compute
    found = _Masked(compute, view)
    if not found.leaves_nothing() or found.offset is None or found.offset < 0:
        return compute
    stages = tuple(found.ended(s) for s in compute.stages)
    return replace(compute, stages=stages)


class _Masked:
    """What the stages of an attention are where its mask takes a score away."""

    def __init__(self, compute: Compute, view: Attention) -> None:
        self.compute, self.view = compute, view
        self.made = {x.tensor: s for s in compute.stages for x in s.stores}
        self.own = {x.tensor for s in (view.scores, *view.between) for x in s.stores}
        self.offset: int | None = None
        """`s <= t + offset` is what the mask leaves."""
        self.beyond: dict[str, str] = {}
        """By tensor over rows and keys: `low` or `zero` beyond the end, `any` where it may be
        something else."""
        self.tables = NumberTables(compute)

    def leaves_nothing(self) -> bool:
        """Whether every sum and maximum over keys is the same without those beyond the end."""
        for s in (*self.view.between, self.view.values):
            roles = self.view.roles[s.name]
            state = self._state(s.values[0], s)
            if s.reduce and any(roles[a.name] == KEY for a in s.reduce):
                if (s.combine, state) not in ((MAX, "low"), (SUM, "zero")):
                    return False
            elif any(role == KEY for role in roles.values()):
                self.beyond |= dict.fromkeys(s.stored, state)
        return True

    def ended(self, s: Stage) -> Stage:
        if s.name not in self.view.roles:
            return s
        axes = {role: own for own, role in self.view.roles[s.name].items()}
        if KEY not in axes or ROW not in axes or self.offset is None:
            return s
        return replace(s, ends=((axes[KEY], Affine.axis(axes[ROW]) + (self.offset + 1)),))

    def _state(self, e: Expr, s: Stage) -> str:
        """What an expression is beyond the end."""
        if isinstance(e, Const):
            return "low" if _is_low(e) else "any"
        if isinstance(e, Load):
            return self.beyond.get(e.tensor, "any")
        if not isinstance(e, Apply):
            return "any"
        if e.op == "select":
            return self._selected(e, s)
        first = self._state(e.args[0], s) if e.args else "any"
        if e.op == "multiply":
            second = self._state(e.args[1], s)
            return "zero" if "zero" in (first, second) else "any"
        if e.op == "exponential":
            return "zero" if first == "low" else "any"
        # a row's maximum is finite, and so is what its weights add up to
        kept = e.op in ("convert", "divide") and first == "zero"
        less = e.op == "subtract" and first == "low" and self._is_of_row(e.args[1], s)
        return first if kept or less else "any"

    def _selected(self, e: Apply, s: Stage) -> str:
        condition, yes, no = e.args
        found = self._triangle(condition, s)
        if found is None:
            return "any"
        offset, is_kept = found
        kept, masked = (yes, no) if is_kept else (no, yes)
        if self.offset not in (None, offset) or not self._is_score(kept):
            return "any"
        self.offset = offset
        return self._state(masked, s)

    def _is_score(self, e: Expr) -> bool:
        """Whether a value is made of scores and constants alone, with no mask in it."""
        masks = isinstance(e, Apply) and (
            e.op == "select" or not all(self._is_score(a) for a in e.args)
        )
        low = isinstance(e, Const) and _is_low(e)
        other = isinstance(e, Load) and (e.tensor not in self.own or e.tensor in self._masked)
        return not (masks or low or other)

    @property
    def _masked(self) -> set[str]:
        """Tensors that a mask was put on already."""
        return {t for t, state in self.beyond.items() if state != "any"}

    def _is_of_row(self, e: Expr, s: Stage) -> bool:
        roles = self.view.roles[s.name]
        return all(roles.get(a) != KEY for x in loads(e) for a in x.axes)

    def _triangle(self, e: Expr, s: Stage) -> tuple[int, bool] | None:
        """The offset of a mask that leaves `s <= t + offset`, and whether it is true there; None of
        any other."""
        e = self._plain(e)
        if not isinstance(e, Apply) or not e.op.startswith("compare_"):
            return None
        direction = e.op.removeprefix("compare_")
        left, right = (self._line(a, s) for a in e.args)
        if left is None or right is None or direction not in FLIPPED:
            return None
        if left[0] == KEY:
            left, right, direction = right, left, FLIPPED[direction]
        if (left[0], right[0]) != (ROW, KEY):
            return None
        return left[1] - right[1] - (direction in ("GT", "LE")), direction in ("GE", "GT")

    def _plain(self, e: Expr) -> Expr:
        """A truth without what changes nothing, and with tables of truths written out."""
        if isinstance(e, Load):
            maker = self.made.get(e.tensor)
            if maker is None or maker.combine is not None or len(maker.values) != 1:
                return e
            places = dict(zip((a.name for a in maker.parallel), e.index, strict=False))
            identity = tuple(Affine.axis(a.name) for a in maker.parallel)
            if maker.stores[0].index != identity:
                return e
            return self._plain(_placed(maker.values[0], places))
        if not isinstance(e, Apply):
            return e
        args = tuple(self._plain(a) if a.dtype == "i1" else a for a in e.args)
        if e.op == "and" and any(_is_truth(a, True) for a in args):
            return args[0] if _is_truth(args[1], True) else args[1]
        if e.op == "select" and _is_truth(args[1], True) and _is_truth(args[2], False):
            return args[0]
        return Apply(e.op, args, e.dtype)

    def _line(self, e: Expr, s: Stage) -> tuple[str, int] | None:
        """(role, first) of integers that count up by one along one axis of a stage."""
        read = list(dict.fromkeys(loads(e)))
        if len(read) != 1 or len(read[0].axes) != 1:
            return None
        axis = read[0].axes[0]
        extent = s.extents.get(axis)
        role = self.view.roles[s.name].get(axis)
        if extent is None or role is None or extent > MOST_NUMBERS:
            return None
        values = [self.tables.number(e, {axis: n}) for n in range(extent)]
        first = values[0]
        if first is None or values != list(range(first, first + extent)):
            return None
        return role, first


def _is_low(e: Const) -> bool:
    return e.dtype not in ("i1",) and e.value <= LOW


def _is_truth(e: Expr, value: bool) -> bool:
    return isinstance(e, Const) and e.dtype == "i1" and bool(e.value) is value


def _placed(e: Expr, places: Mapping[str, Affine]) -> Expr:
    if isinstance(e, Load):
        return e.substitute(places)
    if isinstance(e, Apply):
        return Apply(e.op, tuple(_placed(a, places) for a in e.args), e.dtype)
    return e

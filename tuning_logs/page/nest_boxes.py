"""A loop nest as nested boxes: a tree of plain values, and its HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from hlotune.schedules.ir.nest import Loop, LoopNest, StageNest, region
from hlotune.tuning_logs.page.markup import Markup, joined, tag


@dataclass(frozen=True, slots=True)
class Box:
    """A loop, or a statement where `kind` is nothing; as lists it goes through JSON."""

    kind: str
    title: str
    reduces: bool
    inside: tuple["Box", ...]

    def to_json(self) -> list[Any]:
        return [self.kind, self.title, self.reduces, [box.to_json() for box in self.inside]]

    @classmethod
    def of(cls, data: Sequence[Any]) -> "Box":
        kind, title, reduces, inside = data
        return cls(kind, title, reduces, tuple(map(cls.of, cast(list[Any], inside))))


def boxes(nest: LoopNest) -> tuple[Box, ...]:
    """The boxes of each stage at the root, with those that it holds inside."""
    return tuple(box for s in nest.stages if s.at is None for box in _stage(nest, s))


def _stage(nest: LoopNest, s: StageNest) -> tuple[Box, ...]:
    """Built from the innermost loop out; loops of one iteration are left out."""
    reduces = {a.name for a in s.stage.reduce}
    inside = tuple(Box("", line, False, ()) for line in _statements(s))
    found = list(zip(s.loops, s.trips(region(nest, s)), strict=True))
    for loop, trips in reversed(found):
        attached = nest.attached(s.stage.name, loop.axis)
        inside = (*(box for x in attached for box in _stage(nest, x)), *inside)
        if s.accumulate == loop.axis:
            inside = (Box("", f"{s.stage.name}: sums stay in registers", False, ()), *inside)
        if trips > 1 or attached:
            inside = (Box(loop.kind, _title(loop, trips), loop.root in reduces, inside),)
    return inside


def _title(loop: Loop, trips: int) -> str:
    step = f", {loop.step} at a time" if loop.step > 1 else ""
    return f"{loop.kind} {loop.axis}: {trips} iterations{step}{BORDERS[loop.border]}"


def _statements(s: StageNest) -> list[str]:
    how = "=" if s.stage.combine is None else f"{s.stage.combine}="
    ahead = [f"prefetch {tensor}" for tensor in s.prefetch]
    ahead += [f"prefetch {tensor} along {axis}" for tensor, axis in s.stream]
    return ahead + [
        f"{store.tensor}[{', '.join(map(str, store.index))}] {how} {value}"
        for store, value in zip(s.stage.stores, s.stage.values, strict=True)
    ]


def drawn(found: Sequence[Box]) -> Markup:
    return tag(
        "div", *map(_drawn, found), class_="nest", tabindex=0, role="region",
        aria_label="Loop nest as nested boxes, the outermost loop outside",
    )  # fmt: skip


def _drawn(box: Box) -> Markup:
    if not box.kind:
        return tag("div", box.title, class_="statement")
    kind = box.kind if box.kind in KINDS else "serial"
    return tag(
        "div", tag("div", box.title), *map(_drawn, box.inside),
        class_=f"loop {kind}{' reduces' if box.reduces else ''}",
    )  # fmt: skip


BORDERS = {"": "", "peel": ", borders in bodies of their own", "clip": ", padding left out"}
KINDS = {
    "parallel": "tasks of threads",
    "serial": "one iteration after the other",
    "unroll": "written out",
    "vectorize": "lanes of a vector",
}


def legend() -> Markup:
    spans = (joined(tag("span", kind, class_=kind), f" {words}  ") for kind, words in KINDS.items())
    return tag("p", *spans, "A thick left edge marks a reduction.", class_="legend muted")

"""Windows that slide over the spatial axes: padding, strides, and sizes of results."""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.hlo.frontends.onnx.nodes import Node


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the axes behind the first two, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """How far it is from the first element of a window to behind its last."""
        return tuple(d * (s - 1) + 1 for s, d in zip(self.sizes, self.dilations, strict=True))

    def positions(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Windows along each axis of a tensor of these extents."""
        facts = zip(extents, self.padding, self.reach, self.strides, strict=True)
        return tuple((e + sum(p) - r) // s + 1 for e, p, r, s in facts)


def window_of(node: Node, extents: Sequence[int], sizes: Sequence[int]) -> Window:
    """The window of a convolution or pool.

    Args:
        extents: of the input's spatial axes.
        sizes: of the window.
    """
    rank = len(extents)
    if len(sizes) != rank:
        raise node.refusal(
            f"with a window of {len(sizes)} axes over {rank}", "the model is damaged"
        )
    strides = tuple(node.get("strides", [1] * rank))
    dilations = tuple(node.get("dilations", [1] * rank))
    window = Window(tuple(sizes), strides, dilations, ((0, 0),) * rank)
    return Window(window.sizes, strides, dilations, _padding(node, extents, window))


def _padding(node: Node, extents: Sequence[int], window: Window) -> tuple[tuple[int, int], ...]:
    rank, how = len(extents), node.get("auto_pad", "NOTSET")
    if how == "VALID":
        return ((0, 0),) * rank
    if how in ("SAME_UPPER", "SAME_LOWER"):
        facts = zip(extents, window.strides, window.reach, strict=True)
        missing = [max(0, (-(-e // s) - 1) * s + r - e) for e, s, r in facts]
        less = [(m // 2, m - m // 2) for m in missing]
        return tuple(less if how == "SAME_UPPER" else [p[::-1] for p in less])
    pads = node.get("pads", [0] * (2 * rank))
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def with_ceiling(window: Window, extents: Sequence[int]) -> Window:
    """The window with more padding behind, so that positions are rounded up; none begins there."""
    padding = []
    facts = zip(extents, window.padding, window.reach, window.strides, strict=True)
    for extent, (before, behind), reach, stride in facts:
        count = -(-(extent + before + behind - reach) // stride) + 1
        if (count - 1) * stride >= extent + before:
            count -= 1
        padding.append(
            (before, behind + max(0, (count - 1) * stride + reach - extent - before - behind))
        )
    return Window(window.sizes, window.strides, window.dilations, tuple(padding))

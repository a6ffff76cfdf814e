"""Kernels that GPUs have schedules for, as values: their extents, work and smallest traffic.

An element type is `bf16`, `f16`, `f32`, or `tf32`: f32 in memory, rounded by the matrix unit.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

from hlotune.schedules.patterns.gpu_tails import Tail

ELEMENT_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4}
Epilogue = Literal["none", "bias", "bias_relu", "bias_gelu"]


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """`batch` products of `(m, k)` and `(k, n)`, rows contiguous, summed up in f32."""

    m: int
    k: int
    n: int
    element: str
    batch: int = 1
    epilogue: Epilogue = "none"
    """What is added to a result (one bias a column) and applied to it before it is stored."""
    tail: Tail | None = None
    """What is made of a result otherwise, where the epilogue is none."""

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.k * self.n

    @property
    def bytes(self) -> float:
        each = self.m * self.k + self.k * self.n + self.m * self.n
        return float(self.batch * each * ELEMENT_BYTES[self.element])


@dataclass(frozen=True, slots=True)
class GpuRows:
    """A result for each element of a row that depends on the whole row.

    `softmax`, or `layer_norm` with a scale and an offset a column.
    """

    operation: Literal["softmax", "layer_norm"]
    rows: int
    columns: int
    element: str

    @property
    def flops(self) -> float:
        return 8.0 * self.rows * self.columns

    @property
    def bytes(self) -> float:
        return 2.0 * self.rows * self.columns * ELEMENT_BYTES[self.element]


@dataclass(frozen=True, slots=True)
class GpuAttention:
    """`softmax(q kᵀ / √depth) v` for each head: `q` is `(heads, queries, depth)`.

    Keys are `(heads / group, keys, depth)`, values `(heads / group, keys, features)`.  A causal one
    lets query `i` see the keys up to `i` alone.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    causal: bool
    element: str
    scale: float | None = None
    """What scores are multiplied by, where it is another factor than 1 / √depth."""
    group: int = 1
    """Heads one after another that share the keys and values of one."""
    value_depth: int | None = None
    """Features of a value, where they are not as many as those of a key."""
    scores: Tail | None = None
    """What is made of `q kᵀ` ahead of the softmax, where that is more than a factor and a causal
    mask: its columns are the keys, its rows the queries of all heads."""

    @property
    def features(self) -> int:
        """Features of a value and of a result."""
        return self.depth if self.value_depth is None else self.value_depth

    @property
    def key_heads(self) -> int:
        """Heads that have keys of their own."""
        return self.heads // self.group

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        return 1 / sqrt(self.depth) if self.scale is None else self.scale

    @property
    def flops(self) -> float:
        """Operations of the pairs of query and key that count: half of them in a causal one."""
        widths = self.depth + self.features
        whole = 2.0 * self.heads * self.queries * self.keys * widths
        return whole / 2 if self.causal else whole

    @property
    def bytes(self) -> float:
        rows = self.heads * self.queries + self.key_heads * self.keys
        return float(rows * (self.depth + self.features) * ELEMENT_BYTES[self.element])


@dataclass(frozen=True, slots=True)
class GpuConvolution:
    """A convolution of images `(batch, size, size, channels)` with windows of `window` squared.

    Weights are `(window, window, channels / groups, features)`, results
    `(batch, out, out, features)`.  Features of a group read channels of that group alone.
    """

    batch: int
    size: int
    channels: int
    features: int
    window: int
    stride: int
    padding: int
    element: str
    epilogue: Epilogue = "none"
    """The epilogue, as that of a product, with one bias a feature."""
    dilation: int = 1
    """Positions from one element of a window to the next."""
    groups: int = 1
    tail: Tail | None = None
    """As that of a product."""

    @property
    def out(self) -> int:
        reach = self.dilation * (self.window - 1) + 1
        return (self.size + 2 * self.padding - reach) // self.stride + 1

    @property
    def positions(self) -> int:
        """Rows of the product that the convolution is: one for each position of each image."""
        return self.batch * self.out * self.out

    @property
    def terms(self) -> int:
        return self.window * self.window * self.group_channels

    @property
    def group_channels(self) -> int:
        """Channels of one group."""
        return self.channels // self.groups

    @property
    def group_features(self) -> int:
        """Features of one group."""
        return self.features // self.groups

    @property
    def flops(self) -> float:
        return 2.0 * self.positions * self.features * self.terms

    @property
    def bytes(self) -> float:
        images = self.batch * self.size * self.size * self.channels
        each = images + self.terms * self.features + self.positions * self.features
        return float(each * ELEMENT_BYTES[self.element])


GpuKernel = GpuProduct | GpuRows | GpuAttention | GpuConvolution

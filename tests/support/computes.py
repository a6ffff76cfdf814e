"""What the tests of schedules and of emitted code share: kernels, and calls of what was built.

Every compute here is made on the road that programs take: function, program, site, kernel, graph,
compute.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL, Host, Loaded
from hlotune.codegen.runtime.prepacking import prepack
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends import program
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.verification.buffers import Placement, guarded, rounded
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Affine, map_loads
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch, Tiling, steps_of
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace, space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

Array = NDArray[Any]
Function = Callable[..., Any]
NHWC = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True, eq=False)
class Case:
    """A function of one contraction, with arguments (arrays, or shapes where nothing is run)."""

    name: str
    function: Function
    arguments: tuple[Any, ...]

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def program(self) -> program.Program:
        with jax.enable_x64(True):
            return program.load(self.function, *self.arguments)

    @cached_property
    def site(self) -> Site:
        """The largest site; it has all results of the function."""
        site = sites(self.program)[0]
        assert site.results == self.program.graph.results, f"{self.name} is cut"
        return site

    @property
    def kernel(self) -> Kernel:
        return self.site.kernel

    @cached_property
    def compute(self) -> Compute:
        return compute_of(graph_of(self.kernel))

    def space(self, target: CpuTarget) -> CpuSpace:
        return space_of(self.compute, target)

    @property
    def values(self) -> tuple[Array, ...]:
        """The values of the kernel's arguments, in its order."""
        known = dict(self.site.constants)
        return tuple(self._value(known.get(k, v)) for k, v in enumerate(self.site.arguments))

    def _value(self, content: Any) -> Array:
        if not isinstance(content, int):
            return np.asarray(content.array())
        return np.asarray(self.arguments[self.program.graph.arguments.index(content)])

    def heuristic(self, target: CpuTarget) -> tuple[Schedule, Built]:
        space = self.space(target)
        schedule = space.schedule(space.heuristic())
        return schedule, build(self.compute, schedule, target)


def whole(*shape: int, seed: int = 0, dtype: Any = np.float32, largest: int = 4) -> Array:
    """Small integers: sums of their products are exact, so that no lost or doubled term hides."""
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(-largest, largest + 1, shape).astype(dtype)


def call(loaded: Loaded, case: Case, host: Host, placement: Placement = "behind") -> list[Array]:
    """The results of one call on guarded, poisoned buffers, all of them intact."""
    types = graph_of(case.kernel).result_types
    packed = prepack(
        loaded, dict(enumerate(case.values)), serial(), lambda size: guarded(size, placement)
    )
    plain = [np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in case.values]
    contents = [packed.get(k, data) for k, data in enumerate(plain)]
    arguments = [guarded(c.size, placement) for c in contents]
    for buffer, content in zip(arguments, contents, strict=True):
        buffer.data[...] = content
    results = [guarded(t.bytes, placement) for t in types]
    scratch = guarded(rounded(loaded.built.scratch_bytes), placement)
    into, out = ([x.address for x in part] for part in (arguments, results))
    assert loaded.call(KERNEL, into, out, scratch.address, host) == 0
    assert all(x.intact for x in (*arguments, *results, scratch)), "a write beside a buffer"
    return [r.array(t.shape, numpy_dtype(t.dtype)) for r, t in zip(results, types, strict=True)]


def backwards(compute: Compute) -> Compute:
    """A product that reads its second operand from the last column to the first."""
    contract, *rest = compute.stages
    (_, w), columns = contract.loads, contract.parallel[-1]
    place = Affine.axis(columns.name, -1) + (columns.extent - 1)
    turned = map_loads(contract.values[0], {w: replace(w, index=(w.index[0], place))})
    return Compute(compute.tensors, (replace(contract, values=(turned,)), *rest))


def tiled(
    case: Case, target: CpuTarget, *, chunked: bool = False,
    packs: Mapping[str, str] | None = None, clip: Iterable[str] = (), peel: Iterable[str] = (),
    **numbers: Mapping[str, int],
) -> Schedule:  # fmt: skip
    """A schedule with vectors along the last axis; trips that are not given are 1, orders natural.

    Unlike the first candidate, it stays what it is when the formula for that gets better.
    """
    c = contraction(case.compute)
    parallel, reduce = (tuple(a.name for a in axes) for axes in (c.parallel, c.reduce))
    places = tuple((x.tensor, (packs or {}).get(x.tensor, "none")) for x in c.operands)
    lanes = target.vector_bytes // BYTES[case.compute.tensor("acc").dtype]

    def trips(kind: str, axes: tuple[str, ...]) -> dict[str, int]:
        return dict.fromkeys(axes, 1) | dict(numbers.get(kind, {}))

    tiling = Tiling(
        register=trips("register", parallel), block=trips("block", parallel),
        group=trips("group", parallel), unroll=trips("unroll", reduce),
        steps=trips("steps", reduce),
        task_order=parallel, group_order=parallel, tile_order=parallel, reduce_order=reduce,
        clip=frozenset(clip), peel=frozenset(peel),
    )  # fmt: skip
    return Schedule("direct", steps_of(c, Sketch(parallel[-1], chunked, places), tiling, lanes))


# named kernels ----------------------------------------------------------------------------------


def gemm(m: int, n: int, k: int, *, frozen: bool = False) -> Case:
    """`y[m, n] = x[m, k] w[k, n]`; frozen, w is a constant."""
    x, w = whole(m, k), whole(k, n, seed=1)
    name = f"gemm {m}x{n}x{k}" + " frozen" * frozen
    if frozen:
        return Case(name, lambda x: x @ jnp.asarray(w), (x,))
    return Case(name, lambda x, w: x @ w, (x, w))


def batched(b: int, m: int, n: int, k: int) -> Case:
    arguments = whole(b, m, k), whole(b, k, n, seed=1)
    numbers = ((2,), (1,)), ((0,), (0,))
    return Case(f"batched {b}x{m}x{n}x{k}", lambda x, w: lax.dot_general(x, w, numbers), arguments)


def conv(
    height: int, width: int, channels: int, features: int,
    *, window: int = 3, stride: int = 1, pad: int = 1, groups: int = 1, frozen: bool = False,
    images: int = 1,
) -> Case:  # fmt: skip
    """Images NHWC with weights HWIO, then bias and relu."""
    x = whole(images, height, width, channels)
    w = whole(window, window, channels // groups, features, seed=1)
    bias = whole(features, seed=2)

    def function(x: Any, w: Any, bias: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (stride, stride), [(pad, pad)] * 2,
            dimension_numbers=NHWC, feature_group_count=groups,
        )  # fmt: skip
        return jnp.maximum(y + bias, 0)

    name = f"conv {height}x{width}x{channels}->{features} k{window} s{stride} p{pad} g{groups}"
    name = f"{images} images {name}" if images > 1 else name
    if frozen:
        return Case(f"{name} frozen", lambda x: function(x, jnp.asarray(w), bias), (x,))
    return Case(name, function, (x, w, bias))


def planes(
    height: int, width: int, channels: int, features: int,
    *, dilation: int = 1, groups: int = 1, beyond: int | None = None,
) -> Case:  # fmt: skip
    """One image NCHW with weights OIHW of 3x3; dilated, a transposed convolution.

    `beyond` is its padding behind the image, for results of any extent.
    """
    x, w = whole(1, channels, height, width), whole(features, channels // groups, 3, 3, seed=1)
    spec = "NCHW", "OIHW", "NCHW"

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), [(1, dilation if beyond is None else beyond)] * 2, (dilation,) * 2,
            dimension_numbers=spec,
            feature_group_count=groups,
        )  # fmt: skip

    name = f"planes {height}x{width}x{channels}->{features} d{dilation} g{groups}"
    return Case(name, function, (x, w))


def around_scratch(height: int, width: int, channels: int, features: int) -> Case:
    """A padded convolution of what a stage of its own makes of an image: a border around scratch.

    Images NHWC with weights HWIO of 3x3.
    """
    x, w = whole(1, height, width, channels), whole(3, 3, channels, features, seed=1)

    def function(x: Any, w: Any) -> Any:
        grown = jnp.maximum(x + 1, 0)
        return lax.conv_general_dilated(grown, w, (1, 1), "SAME", dimension_numbers=NHWC)

    return Case(f"{height}x{width}x{channels}->{features} of a stage", function, (x, w))


def sized(*types: str) -> Case:
    """A matrix product of shapes alone, `f32[8,784]`: nothing of it can be run."""
    return Case(" ".join(types), lambda x, w: x @ w, tuple(map(program.argument, types)))


def depthwise(height: int, width: int, channels: int) -> Case:
    return conv(height, width, channels, channels, groups=channels)


@cache
def named(name: str) -> Case:
    """The kernels of real networks that the tests of spaces look at."""
    return {
        "C2": lambda: conv(56, 56, 64, 64),
        "C6": lambda: conv(28, 28, 128, 128),
        "C9": lambda: conv(14, 14, 256, 256),
        "gemm": lambda: gemm(1024, 1024, 1024),
        "depthwise": lambda: depthwise(56, 56, 96),
        "batched": lambda: batched(12, 128, 64, 128),
        "small gemm": lambda: gemm(37, 45, 29),
        "small frozen gemm": lambda: gemm(37, 45, 29, frozen=True),
        "frozen row": lambda: gemm(1, 1100, 500, frozen=True),
        "small conv": lambda: conv(9, 11, 5, 19),
        "strided conv": lambda: conv(13, 10, 7, 40, stride=2, frozen=True),
        "small depthwise": lambda: depthwise(9, 8, 21),
        "planes": lambda: planes(9, 11, 5, 19),
        "transposed planes": lambda: planes(5, 6, 7, 18, dilation=2),
        "grouped planes": lambda: planes(6, 5, 8, 96, groups=2),
        "wide conv": lambda: conv(10, 11, 8, 24),
        "wide frozen conv": lambda: conv(10, 11, 8, 24, frozen=True),
        "wide planes": lambda: planes(10, 11, 8, 24),
        "depthwise planes": lambda: planes(9, 18, 6, 6, groups=6),
        "ragged planes": lambda: planes(5, 6, 7, 18, dilation=2, beyond=1),
        "thin gemm": lambda: gemm(2, 3, 4096),
        "bf16 gemm": lambda: sized("bf16[24,64]", "bf16[64,48]"),
    }[name]()


REAL = ("C2", "C6", "C9", "gemm", "depthwise", "batched")
SMALL = (
    "small gemm", "small frozen gemm", "small conv", "strided conv", "small depthwise", "planes",
    "transposed planes", "grouped planes",
)  # fmt: skip

ANY_WAY = (
    "wide conv", "wide frozen conv", "wide planes", "depthwise planes", "ragged planes",
    "thin gemm", "bf16 gemm",
)  # fmt: skip
"""Those of which all algorithms together have code of every kind."""

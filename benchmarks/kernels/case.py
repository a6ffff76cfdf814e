"""A case: one function of JAX, its arguments, and the same in the words of the peers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
TYPES: Mapping[str, Any] = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
    "s8": np.int8, "u8": np.uint8, "s32": np.int32, "u32": np.uint32, "s64": np.int64,
    "bool": np.bool_,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """One argument.  Without `draw`, normal numbers, and of integers those of 0 to 99."""

    dtype: str
    shape: tuple[int, ...]
    draw: Draw | None = None

    def values(self, rng: np.random.Generator) -> Array:
        kind = TYPES[self.dtype]
        if self.draw is not None:
            return self.draw(rng, self.shape).astype(kind)
        if np.issubdtype(kind, np.integer) or kind is np.bool_:
            return rng.integers(0, 100, self.shape).astype(kind)
        if kind is np.float32:
            return rng.standard_normal(self.shape, dtype=np.float32)
        return rng.standard_normal(self.shape).astype(kind)


def f32(*shape: int, draw: Draw | None = None) -> Given:
    return Given("f32", shape, draw)


def bf16(*shape: int) -> Given:
    return Given("bf16", shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)


def small(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)


def numbers_below(limit: int) -> Draw:
    return lambda rng, shape: rng.integers(0, limit, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Each form takes the arguments in their order and gives the same results.

    Args:
        name: what the table shows, and `CASES` selects by.
        jax: as a user writes it.
        given: the arguments, which are flat.
        torch: takes the module `torch` first, then tensors.
        onnx: takes a `benchmarks.kernels.onnx_graph.Graph` first, then names of values; None
            where ONNX has no such thing.
        donated: so many arguments come first that the first results replace in the next call;
            `jax.jit` may write these results over them.
        tolerance: the largest difference allowed, as a share of the largest element.
        goal_s: what a call may take at most, where there is such a promise.
    """

    name: str
    jax: Callable[..., Any]
    given: tuple[Given, ...]
    torch: Callable[..., Any] | None = None
    onnx: Callable[..., Any] | None = None
    donated: int = 0
    tolerance: float = 2e-4
    goal_s: float | None = None

    @property
    def has_wide_numbers(self) -> bool:
        """Whether JAX must be told to keep 64 bits."""
        return any(g.dtype in ("f64", "s64") for g in self.given)

    @property
    def argument_bytes(self) -> int:
        return sum(x.size * x.dtype.itemsize for x in self._shapes())

    @property
    def result_bytes(self) -> int:
        with jax.enable_x64(self.has_wide_numbers):
            found = jax.tree.leaves(jax.eval_shape(self.jax, *self._shapes()))
        return sum(x.size * x.dtype.itemsize for x in found)

    def _shapes(self) -> list[Any]:
        with jax.enable_x64(self.has_wide_numbers):
            return [jax.ShapeDtypeStruct(g.shape, TYPES[g.dtype]) for g in self.given]  # type: ignore[no-untyped-call]

    def values(self) -> list[Array]:
        rng = np.random.default_rng(0)
        return [g.values(rng) for g in self.given]

    def compiled(self) -> Any:
        """What `jax.jit` makes of it."""
        return jax.jit(self.jax, donate_argnums=tuple(range(self.donated)))

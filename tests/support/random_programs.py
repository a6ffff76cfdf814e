"""Small programs that are drawn at random: chains of operations on tensors of awkward extents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]
Random = np.random.Generator
Move = Callable[[Any, Random], Any]
EXTENTS = (1, 1, 2, 3, 4, 5, 8, 9, 17, 31, 33)
FLOATS = (np.float32, np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
TYPES = (*FLOATS, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_)
MOST_ELEMENTS = 6000
ODDITIES = (np.nan, np.inf, -np.inf, -0.0)


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def drawn_array(rng: Random, shape: tuple[int, ...], dtype: Any, odd: float = 0.0) -> Array:
    """Small whole numbers, of which a share is replaced by values that are no numbers."""
    if np.dtype(dtype) == np.bool_:
        return rng.random(shape) < 0.5
    low = 0 if np.dtype(dtype).kind == "u" else -4
    values = rng.integers(low, 5, shape).astype(np.float64)
    if odd and jnp.issubdtype(dtype, jnp.floating):
        values = np.where(rng.random(shape) < odd, rng.choice(ODDITIES, shape), values)
    return np.asarray(values).astype(dtype)


def drawn_shape(rng: Random, rank: int | None = None) -> tuple[int, ...]:
    rank = int(rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6])) if rank is None else rank
    shape = [int(n) for n in rng.choice(EXTENTS, rank)]
    while np.prod(shape) > MOST_ELEMENTS:
        shape[int(np.argmax(shape))] = int(rng.choice([1, 2, 3]))
    return tuple(shape)


def between(rng: Random, low: int, high: int) -> int:
    """Both included."""
    return int(rng.integers(low, high + 1))


def axis_of(x: Any, rng: Random) -> int:
    return between(rng, 0, x.ndim - 1)


# moves ----------------------------------------------------------------------------------------


def padded(x: Any, rng: Random) -> Any:
    config = []
    for n in x.shape:
        low, high, inside = between(rng, -2, 3), between(rng, -2, 3), int(rng.random() < 0.2)
        whole = n + (n - 1) * inside if n else 0
        config.append((low, high, inside) if low + high + whole > 0 else (1, 0, 0))
    value = rng.choice([0, 1, 3]) if x.dtype != np.bool_ else rng.random() < 0.5
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


def sliced(x: Any, rng: Random) -> Any:
    starts = [between(rng, 0, max(n - 1, 0)) for n in x.shape]
    limits = [between(rng, min(s + 1, n), n) for s, n in zip(starts, x.shape, strict=True)]
    return lax.slice(x, starts, limits, [between(rng, 1, 3) for _ in x.shape])


def reversed_(x: Any, rng: Random) -> Any:
    return lax.rev(x, [d for d in range(x.ndim) if rng.random() < 0.5])


def transposed(x: Any, rng: Random) -> Any:
    return jnp.transpose(x, [int(d) for d in rng.permutation(x.ndim)])


def reshaped(x: Any, rng: Random) -> Any:
    if rng.random() < 0.3:
        return x.reshape(-1)
    d = axis_of(x, rng)
    n = x.shape[d]
    parts = [k for k in (1, 2, 3, 4, 5, 11) if n and n % k == 0]
    k = int(rng.choice(parts or [1]))
    return x.reshape((*x.shape[:d], n // k, k, *x.shape[d + 1 :]))


def rolled(x: Any, rng: Random) -> Any:
    d = axis_of(x, rng)
    return jnp.roll(x, between(rng, -3, x.shape[d] + 2), d)


def put_together(x: Any, rng: Random) -> Any:
    d = axis_of(x, rng)
    first, last = lax.slice_in_dim(x, 0, 1, axis=d), lax.slice_in_dim(x, -1, None, axis=d)
    pieces = [x, first, last, x + x if x.dtype != np.bool_ else ~x, lax.rev(x, (d,))]
    count = between(rng, 2, 7)
    return lax.concatenate([pieces[int(k)] for k in rng.integers(0, 5, count)], d)


def summed(x: Any, rng: Random) -> Any:
    every = rng.random() < 0.2
    axes = tuple(d for d in range(x.ndim) if every or rng.random() < 0.5)
    kinds: list[Any] = [jnp.sum, jnp.max, jnp.min]
    kind = kinds[between(rng, 0, 2)] if x.dtype != np.bool_ else jnp.any
    keep = bool(rng.random() < 0.5)
    return kind(x, axis=axes, keepdims=keep)


def place_of_largest(x: Any, rng: Random) -> Any:
    return (jnp.argmax if rng.random() < 0.5 else jnp.argmin)(x, axis_of(x, rng))


def start_of(kind: Any, dtype: Any) -> Any:
    if kind is lax.add:
        return np.zeros((), dtype)[()]
    sign = 1 if kind is lax.min else -1
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(sign * np.inf, dtype)[()]
    limits = np.iinfo(dtype)
    return np.asarray(limits.max if sign > 0 else limits.min, dtype)[()]


def windowed(x: Any, rng: Random) -> Any:
    x = x.astype(np.int32) if x.dtype == np.bool_ else x
    kind = (lax.add, lax.max, lax.min)[between(rng, 0, 2)]
    size, padding, apart, stretch = list[int](), list[tuple[int, int]](), list[int](), list[int]()
    for n in x.shape:
        near = rng.random() < 0.5
        size.append(1 if near else between(rng, 1, 5))
        apart.append(1 if near else between(rng, 1, 4))
        stretch.append(1 if rng.random() < 0.85 else 2)
        reach, whole = (size[-1] - 1) * apart[-1] + 1, (n - 1) * stretch[-1] + 1
        low, high = (0, 0) if near else (between(rng, -1, reach), between(rng, -1, reach))
        padding.append((low, high) if low + high + whole >= reach else (reach, reach))
    strides = [between(rng, 1, 3) for _ in x.shape]
    start = start_of(kind, x.dtype)
    if stretch.count(1) < x.ndim or rng.random() < 0.3:
        return lax.reduce_window(x, start, kind, size, strides, padding, stretch, apart)
    return lax.reduce_window(x, start, kind, size, strides, padding, None, apart)


def gradient_of_pooling(x: Any, rng: Random) -> Any:
    x = x.astype(np.float32)
    size = [between(rng, 1, min(3, n)) for n in x.shape]
    strides = [between(rng, 1, 3) for _ in x.shape]
    padding = "SAME" if rng.random() < 0.5 else "VALID"

    def pool(y: Any) -> Any:
        return lax.reduce_window(y, -np.inf, lax.max, size, strides, padding)

    out, back = jax.vjp(pool, x)
    return back(out + 1)[0]


def accumulated(x: Any, rng: Random) -> Any:
    x = x.astype(np.int32) if x.dtype == np.bool_ else x
    kind = (lax.cumsum, lax.cummax, lax.cummin)[between(rng, 0, 2)]
    return kind(x, axis_of(x, rng), reverse=bool(rng.random() < 0.3))


def taken(x: Any, rng: Random) -> Any:
    d = axis_of(x, rng)
    n, count = x.shape[d], between(rng, 1, 9)
    mode = str(rng.choice(["clip", "fill", "wrap"]))
    low, high = -n - 2, n + 2
    kind = (np.int32, np.int64, np.int8)[between(rng, 0, 2)]
    places = lax.rem(lax.iota(np.int32, count) * between(rng, 1, 9), np.int32(high - low + 1)) + low
    if rng.random() < 0.5 and x.size:
        places = places + jnp.clip(x.reshape(-1)[:1].astype(np.int32), 0, 0)
    return jnp.take(x, places.astype(kind), axis=d, mode=mode)


def taken_along(x: Any, rng: Random) -> Any:
    d = axis_of(x, rng)
    size = tuple(between(rng, 1, 4) if k == d else n for k, n in enumerate(x.shape))
    some = lax.slice(x, (0,) * x.ndim, tuple(min(a, b) for a, b in zip(size, x.shape, strict=True)))
    mode = str(rng.choice(["clip", "fill"]))
    places = jnp.clip(jnp.nan_to_num(some.astype(np.float32)), -99, 99).astype(np.int32)
    return jnp.take_along_axis(x, places, axis=d, mode=mode)


def sliced_at_runtime(x: Any, rng: Random) -> Any:
    first = jnp.clip(jnp.nan_to_num(x.reshape(-1)[0].astype(np.float32)), -99, 99).astype(np.int32)
    starts = [first * between(rng, -2, 3) + between(rng, -9, n + 3) for n in x.shape]
    return lax.dynamic_slice(x, starts, [between(rng, 1, n) for n in x.shape])


def updated_at_runtime(x: Any, rng: Random) -> Any:
    first = jnp.clip(jnp.nan_to_num(x.reshape(-1)[0].astype(np.float32)), -99, 99).astype(np.int32)
    starts = [first * between(rng, -2, 3) + between(rng, -9, n + 3) for n in x.shape]
    part = lax.slice(x, (0,) * x.ndim, [between(rng, 1, n) for n in x.shape])
    return lax.dynamic_update_slice(x, part + part if x.dtype != np.bool_ else ~part, starts)


def set_at(x: Any, rng: Random) -> Any:
    box = tuple(slice(between(rng, 0, max(n - 1, 0)), n, between(rng, 1, 2)) for n in x.shape)
    place = x.at[box]
    if x.dtype == np.bool_ or rng.random() < 0.5:
        return place.set(jnp.asarray(1, x.dtype))
    return place.add(x[box]) if rng.random() < 0.5 else place.max(jnp.asarray(1, x.dtype))


def converted(x: Any, rng: Random) -> Any:
    to = TYPES[between(rng, 0, len(TYPES) - 1)]
    if is_float(x) and not jnp.issubdtype(to, jnp.floating):
        x = jnp.clip(jnp.nan_to_num(x), 0, 9)
    return x.astype(to)


def elementwise(x: Any, rng: Random) -> Any:
    if x.dtype == np.bool_:
        return ~x
    choices: list[Callable[[Any], Any]] = [
        lambda x: jnp.maximum(x, 1), lambda x: x - 1, jnp.abs, lambda x: jnp.where(x > 1, x, 2),
        jnp.sign, lambda x: jnp.clip(x, 0, 3), lambda x: x != 1,
        lambda x: x * lax.broadcasted_iota(x.dtype, x.shape, 0) if x.ndim else x,
    ]  # fmt: skip
    return choices[between(rng, 0, len(choices) - 1)](x)


def with_its_sum(x: Any, rng: Random) -> Any:
    """Values beside a reduction of themselves, as softmax and norms have them."""
    d = axis_of(x, rng)
    return x - x.max(d, keepdims=True) if x.dtype != np.bool_ else x & x.any(d, keepdims=True)


MOVES: tuple[Move, ...] = (
    padded, sliced, reversed_, transposed, reshaped, rolled, put_together, summed, windowed,
    place_of_largest, gradient_of_pooling, accumulated, taken, taken_along, sliced_at_runtime,
    updated_at_runtime, set_at, converted, elementwise, elementwise, with_its_sum,
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A function of arrays, and the arrays."""

    function: Callable[..., Any]
    arguments: tuple[Array, ...]
    moves: tuple[str, ...]


def drawn_program(seed: int, moves: tuple[Move, ...] = MOVES) -> Drawn:
    rng = np.random.default_rng([17, seed])
    shape = drawn_shape(rng)
    dtype = TYPES[between(rng, 0, len(TYPES) - 1)]
    other = drawn_array(rng, tuple(n if rng.random() < 0.7 else 1 for n in shape), dtype)
    arguments = drawn_array(rng, shape, dtype, 0.02 * between(rng, 0, 1)), other
    count = between(rng, 1, 5)
    chosen = [moves[between(rng, 0, len(moves) - 1)] for _ in range(count)]
    seeds = rng.integers(0, 2**31, count + 1)

    def function(x: Any, y: Any) -> Any:
        late = np.random.default_rng(seeds[-1])
        kept = list[Any]()
        value = x ^ y if x.dtype == np.bool_ else x + y
        for move, own in zip(chosen, seeds, strict=False):
            needs_axis = move not in (converted, elementwise)
            if value.size and value.size < 4 * MOST_ELEMENTS and (value.ndim or not needs_axis):
                value = move(value, np.random.default_rng(own))
                if late.random() < 0.2:
                    kept.append(value)
        return (value, *kept)

    return Drawn(function, arguments, tuple(m.__name__ for m in chosen))

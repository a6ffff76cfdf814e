"""The expressions of computes as operations of JAX on blocks.

Narrow floats are computed with in f32.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.codegen.pallas.elements import erf, erfc
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.patterns.inlined import PLACES

Places = Mapping[str, jax.Array]
"""By axis: its points, of shapes that broadcast to the block's."""
WIDTHS = {
    "f32": jnp.float32, "bf16": jnp.float32, "f16": jnp.float32, "i32": jnp.int32,
    "i8": jnp.int32, "ui8": jnp.int32, "i1": jnp.bool_,
}  # fmt: skip
"""The type in which values of an element type are computed."""
Operation = Callable[..., jax.Array]


def _sign(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, 1.0, jnp.where(x < 0, -1.0, x))


def _not(x: jax.Array) -> jax.Array:
    return jnp.logical_not(x) if x.dtype == jnp.bool_ else ~x


def _finite(x: jax.Array) -> jax.Array:
    return jnp.abs(x) < jnp.inf


def _clamp(low: jax.Array, x: jax.Array, high: jax.Array) -> jax.Array:
    return jnp.minimum(jnp.maximum(x, low), high)


OPERATIONS: dict[str, Operation] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: lax.pow(*jnp.broadcast_arrays(a, b)),
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": _not,
    "negate": lambda a: -a,
    "abs": jnp.abs,
    "sign": _sign,
    "clamp": _clamp,
    "select": jnp.where,
    "is_finite": _finite,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "exponential": jnp.exp,
    "exponential_minus_one": jnp.expm1,
    "log": jnp.log,
    "log_plus_one": jnp.log1p,
    "logistic": lambda a: 1 / (1 + jnp.exp(-a)),
    "tanh": jnp.tanh,
    "sine": jnp.sin,
    "cosine": jnp.cos,
    "erf": erf,
    "erfc": erfc,
    "compare_EQ": lambda a, b: a == b,
    "compare_NE": lambda a, b: a != b,
    "compare_LT": lambda a, b: a < b,
    "compare_LE": lambda a, b: a <= b,
    "compare_GT": lambda a, b: a > b,
    "compare_GE": lambda a, b: a >= b,
}  # fmt: skip
"""What each operation of `schedules/patterns/gpu_operations.py` is, but conversions."""


class Evaluation:
    """Values of expressions at the points of a block; equal objects are computed once."""

    def __init__(self, places: Places, load: Callable[[Load], jax.Array]) -> None:
        """`load` gives the values of an argument or of a reduction."""
        self.places, self._load = places, load
        self._known: dict[int, jax.Array] = {}

    def value(self, e: Expr) -> jax.Array:
        """Broadcasts to the block; of the type that the expression's values are computed in."""
        if id(e) not in self._known:
            self._known[id(e)] = self._made(e)
        return self._known[id(e)]

    def _made(self, e: Expr) -> jax.Array:
        match e:
            case Const():
                return jnp.asarray(e.value, WIDTHS[e.dtype])
            case Load() if e.tensor == PLACES:
                return self.place(e.index[0])
            case Load():
                return self._load(e)
            case Apply() if e.op == "convert":
                return converted(self.value(e.args[0]), e.dtype)
            case Apply() if e.op in OPERATIONS:
                return OPERATIONS[e.op](*map(self.value, e.args))
        raise UnsupportedKernel(f"expected an operation that blocks have, got {e}")

    def place(self, index: Affine) -> jax.Array:
        """The value of an affine function of axes."""
        made: jax.Array = jnp.int32(index.constant)
        for axis, factor in index.terms:
            part = self.places[axis]
            made = made + (part if factor == 1 else part * factor)
        return made


def converted(values: jax.Array, dtype: str) -> jax.Array:
    """Values in the type that elements of `dtype` are computed in."""
    wide = WIDTHS[dtype]
    if wide == jnp.bool_:
        return values if values.dtype == jnp.bool_ else values != 0
    return values.astype(wide)

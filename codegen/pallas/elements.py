"""What an element type means to Pallas: the type in memory, and how products round it."""

import jax
import jax.numpy as jnp
from jax import lax

DTYPES = {
    "bf16": jnp.bfloat16, "f16": jnp.float16, "tf32": jnp.float32, "f32": jnp.float32,
    "i32": jnp.int32, "i8": jnp.int8, "ui8": jnp.uint8, "i1": jnp.bool_,
}  # fmt: skip
LOG2_E = 1.4426950408889634


def struct(shape: tuple[int, ...], element: str) -> jax.ShapeDtypeStruct:
    """An array's shape and type in memory."""
    return jax.ShapeDtypeStruct(shape, DTYPES[element])  # type: ignore[no-untyped-call]


def dot(a: jax.Array, b: jax.Array, element: str, transposed: bool = False) -> jax.Array:
    """`(m, k)` by `(k, n)`, or by `(n, k)` if transposed, in f32."""
    precision = lax.Precision.HIGH if element == "tf32" else lax.Precision.HIGHEST
    return lax.dot_general(
        a,
        b,
        dimension_numbers=(((1,), (1 if transposed else 0,)), ((), ())),
        precision=precision if element in ("tf32", "f32") else None,
        preferred_element_type=jnp.float32,
    )


def erf(x: jax.Array) -> jax.Array:
    """The error function by a rational of five terms, since Triton has none: 1.5e-7 off at most.

    Abramowitz and Stegun, formula 7.1.26.
    """
    t = 1 / (1 + 0.3275911 * jnp.abs(x))
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = jnp.zeros_like(x)
    for term in terms:
        total = (total + term) * t
    return jnp.sign(x) * (1 - total * jnp.exp(-x * x))


def erfc(x: jax.Array) -> jax.Array:
    """One less the error function, by an exponential of a polynomial: 1.2e-7 of itself off at most.

    Chebyshev's fit in Numerical Recipes, section 6.2.
    """
    t = 1 / (1 + 0.5 * jnp.abs(x))
    terms = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
             0.37409196, 1.00002368, -1.26551223)  # fmt: skip
    total = jnp.zeros_like(x)
    for term in terms:
        total = total * t + term
    tail = t * jnp.exp(total - x * x)
    return jnp.where(x >= 0, tail, 2 - tail)


def finished(sums: jax.Array, bias: jax.Array | None, epilogue: str) -> jax.Array:
    """What an epilogue makes of sums `(m, n)` and a bias of each column."""
    if bias is not None:
        sums = sums + bias.astype(jnp.float32)[None, :]
    return activated(sums, epilogue)


def activated(sums: jax.Array, epilogue: str) -> jax.Array:
    """The rectifier or the Gaussian unit of an epilogue, or the sums themselves."""
    if epilogue == "bias_relu":
        return jnp.maximum(sums, 0.0)
    if epilogue == "bias_gelu":
        return 0.5 * sums * erfc(sums * -(0.5**0.5))
    return sums

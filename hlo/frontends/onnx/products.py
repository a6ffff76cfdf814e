"""Products of matrices, and sums of products."""

import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value


def _matmul(node: Node, a: Value, b: Value) -> Value:
    return jnp.matmul(jnp.asarray(a), jnp.asarray(b))


def _gemm(node: Node, a: Value, b: Value, c: Value = None) -> Value:
    """alpha * a @ b + beta * c, where a and b may be stored the other way around."""
    axes = ((0 if node.get("transA", 0) else 1,), (1 if node.get("transB", 0) else 0,))
    product = lax.dot_general(jnp.asarray(a), jnp.asarray(b), (axes, ((), ())))
    product = _scaled(product, node.get("alpha", 1.0))
    return product if c is None else product + _scaled(jnp.asarray(c), node.get("beta", 1.0))


def _scaled(x: Value, by: float) -> Value:
    return x if by == 1 else (x * by).astype(x.dtype)


def _einsum(node: Node, *x: Value) -> Value:
    equation = node.require("equation").replace(" ", "")
    return jnp.einsum(equation, *map(jnp.asarray, x))


def _determinant(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    if x.shape[-1] > 3:
        raise node.refusal(
            f"of matrices of {x.shape[-1]} rows", "hlotune has a rule for three rows at most"
        )
    return jnp.linalg.det(x)


ROWS = {
    "Det": Operator(_determinant),
    "Einsum": Operator(_einsum),
    "Gemm": Operator(_gemm),
    "MatMul": Operator(_matmul),
}

"""Which products leave their precision to the device that computes them.

XLA multiplies f32 operands of such products as tf32 on GPUs that have it: with 10 explicit bits of
the mantissa.  Which targets do so is said by `Target.f32_operands`.
"""

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import CONTRACTIONS

_ASKING = {"precision_config", "algorithm"}
"""Attributes by which a program asks for a precision; those that ask for the default are none."""


def leaves_precision(op: Op) -> bool:
    """Whether an operation is a product, or convolution, at the device's default precision."""
    return op.name in CONTRACTIONS and _ASKING.isdisjoint(name for name, _ in op.attributes)


def all_leave_precision(graph: Graph) -> bool:
    """Whether a kernel has products, and all are at the device's default precision."""
    products = [op for op in graph.ops if op.name in CONTRACTIONS]
    return bool(products) and all(map(leaves_precision, products))

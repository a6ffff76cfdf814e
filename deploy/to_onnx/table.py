"""All rules, by the name of the operation."""

from hlotune.deploy.to_onnx import control_flow, elementwise, movement, products, reductions
from hlotune.deploy.to_onnx.writer import Rule

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **products.RULES,
    **reductions.RULES,
    **control_flow.RULES,
}

"""Graphs of a model, evaluated node by node while JAX traces them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from onnx import AttributeProto, FunctionProto, defs, helper

from hlotune.hlo.frontends.onnx.folding import fold
from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, is_known
from hlotune.hlo.frontends.onnx.sequences import TensorSequence
from hlotune.hlo.frontends.onnx.table import LEFT_OUT, OPERATORS
from hlotune.schedules.errors import ProgramError

_OWN = ("", "ai.onnx")
_MOST_NESTED = 64
"""Functions and graphs inside one another."""
_TEXTS = ("O", "S", "U")
"""Kinds of NumPy's types that hold texts."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node can refer to besides its inputs."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Any]
    """Functions of the model, by domain and name."""
    array_of: Callable[[Any], np.ndarray[Any, Any]]
    """The values of a TensorProto."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Inside a function: the attributes of its call."""
    depth: int = 0


def run_graph(
    graph: Any, inputs: Sequence[Value], outer: Mapping[str, Value], around: Surroundings
) -> list[Value]:
    """The results of a GraphProto.

    Args:
        inputs: values for its inputs that are no initialisers.
        outer: values that it may use by their names.

    Raises:
        ProgramError: an operator in it is refused.
    """
    values = dict(outer)
    values |= {t.name: around.array_of(t) for t in graph.initializer}
    values |= {t.values.name: _dense(t, around) for t in graph.sparse_initializer}
    stored = {t.name for t in graph.initializer}
    names = [i.name for i in graph.input if i.name not in stored]
    values |= dict(zip(names, inputs, strict=True))
    run_nodes(graph.node, values, around)
    return [_found(values, o.name, "the graph's results") for o in graph.output]


def run_nodes(nodes: Sequence[Any], values: dict[str, Value], around: Surroundings) -> None:
    """Adds the results of nodes, which stand in the order of their evaluation, to the values."""
    for node in nodes:
        inputs = [_found(values, n, node.op_type) if n else None for n in node.input]
        results = _results(node, inputs, values, around)
        if len(results) < sum(1 for name in node.output if name):
            raise ProgramError(
                f"expected {len(node.output)} results of {_called(node)}, got {len(results)}; "
                "the model is damaged: write it again"
            )
        values |= {n: r for n, r in zip(node.output, results, strict=False) if n}


def _results(
    proto: Any, inputs: list[Value], values: Mapping[str, Value], around: Surroundings
) -> Sequence[Value]:
    node = _node(proto, values, around)
    if any(is_known(i) and np.asarray(i).dtype.kind in _TEXTS for i in inputs):
        raise node.refusal("with texts", "hlotune computes with numbers alone")
    try:
        return _computed(proto, node, inputs, around)
    except ProgramError:
        raise
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # a damaged model can make any error in JAX, NumPy and our rules
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise node.refusal(
            f"which fails here ({said})", "the model is damaged, or hlotune does not take this form"
        ) from error


def _computed(proto: Any, node: Node, inputs: list[Value], around: Surroundings) -> Sequence[Value]:
    name = (proto.domain, proto.op_type)
    if name in around.functions:
        return _run_function(around.functions[name], proto, inputs, around)
    if all(i is None or is_known(i) for i in inputs):
        resolved = _resolved(proto, around)
        if (folded := fold(resolved, around.opsets, inputs)) is not None:
            return folded
    row = OPERATORS.get(node.operator)
    if row is not None:
        return _by_rule(row, node, inputs)
    if node.operator in LEFT_OUT:
        why, advice = LEFT_OUT[node.operator]
        raise node.refusal(why, advice)
    if (body := _body(proto, inputs, around)) is not None:
        return _run_function(body, proto, inputs, around)
    raise node.refusal(
        f"of opset {node.opset}, which it has no rule for",
        "export the model with operators of ONNX's own domain, without optimizations of a runtime",
    )


def _by_rule(row: Operator, node: Node, inputs: list[Value]) -> Sequence[Value]:
    given = list(inputs)
    for position, what in row.known.items():
        if position < len(given) and given[position] is not None:
            given[position] = node.known(given[position], what)
    made = row.rule(node, *given)
    return made if isinstance(made, tuple | list) else (made,)


def _node(proto: Any, values: Mapping[str, Value], around: Surroundings) -> Node:
    def run(graph: Any, inputs: Sequence[Value]) -> list[Value]:
        return run_graph(graph, inputs, values, _deeper(around, _called(proto)))

    own = proto.domain in _OWN
    return Node(
        operator=proto.op_type if own else f"{proto.domain}.{proto.op_type}",
        name=proto.name,
        opset=around.opsets.get("" if own else proto.domain, 1),
        attributes={a.name: _attribute(a, around) for a in _resolved(proto, around).attribute},
        wanted=tuple(map(bool, proto.output)),
        run=run,
    )


def _resolved(proto: Any, around: Surroundings) -> Any:
    """The node with the attributes of the call in place of references to them."""
    if not any(a.ref_attr_name for a in proto.attribute):
        return proto
    node = type(proto)()
    node.CopyFrom(proto)
    del node.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            node.attribute.append(attribute)
        elif attribute.ref_attr_name in around.attributes:
            given = node.attribute.add()
            given.CopyFrom(around.attributes[attribute.ref_attr_name])
            given.name = attribute.name
    return node


def _attribute(attribute: Any, around: Surroundings) -> Any:
    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return around.array_of(attribute.t)
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind == AttributeProto.STRINGS:
        return [s.decode(errors="replace") for s in attribute.strings]
    if kind == AttributeProto.SPARSE_TENSOR:
        return _dense(attribute.sparse_tensor, around)
    value = helper.get_attribute_value(attribute)
    return list(value) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def _dense(sparse: Any, around: Surroundings) -> np.ndarray[Any, Any]:
    values, indices = around.array_of(sparse.values), around.array_of(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return dense


def _body(proto: Any, inputs: Sequence[Value], around: Surroundings) -> Any:
    """The function that ONNX defines an operator by, None where it does not."""
    domain = "" if proto.domain in _OWN else proto.domain
    opset = around.opsets.get(domain, 1)
    try:
        schema = defs.get_schema(proto.op_type, opset, domain)
    except defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
        best = max((v for v in versions if v <= opset), default=min(versions))
        types = [_type_of(i).SerializeToString() for i in inputs]
        node = _resolved(proto, around).SerializeToString()
        text = schema.get_context_dependent_function_with_opset_version(best, node, types)
    elif schema.has_function:
        versions = schema.function_opset_versions
        best = max((v for v in versions if v <= opset), default=min(versions))
        text = schema.get_function_with_opset_version(best)
    else:
        return None
    body = FunctionProto()
    body.ParseFromString(text)
    return body


def _type_of(value: Value) -> Any:
    if value is None:
        return helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None))
    if isinstance(value, TensorSequence):
        return helper.make_sequence_type_proto(_type_of(next(iter(value.items), None)))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_type_proto(kind, value.shape)


def _run_function(
    function: Any, call: Any, inputs: Sequence[Value], around: Surroundings
) -> list[Value]:
    given = [*inputs, *[None] * (len(function.input) - len(inputs))]
    values = dict(zip(function.input, given, strict=True))
    attributes = {a.name: a for a in function.attribute_proto}
    attributes |= {a.name: a for a in _resolved(call, around).attribute}
    if not function.attribute_proto:
        attributes = _defaults(call, around) | attributes
    opsets = {**around.opsets, **{o.domain: o.version for o in function.opset_import}}
    inner = replace(_deeper(around, _called(call)), opsets=opsets, attributes=attributes)
    run_nodes(function.node, values, inner)
    return [values.get(name) for name in function.output]


def _defaults(call: Any, around: Surroundings) -> dict[str, Any]:
    """Default attributes of an operator of ONNX's."""
    try:
        schema = defs.get_schema(call.op_type, around.opsets.get(call.domain, 1), call.domain)
    except defs.SchemaError:
        return {}
    return {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}


def _deeper(around: Surroundings, where: str) -> Surroundings:
    if around.depth >= _MOST_NESTED:
        raise ProgramError(
            f"expected at most {_MOST_NESTED} functions inside one another, got more at {where}; "
            "a function of the model calls itself: write the model again"
        )
    return replace(around, depth=around.depth + 1)


def _found(values: Mapping[str, Value], name: str, where: str) -> Value:
    if name not in values:
        raise ProgramError(
            f"expected a value {name!r} for {where}, got none before it; the model is damaged: "
            "write it again"
        )
    return values[name]


def _called(proto: Any) -> str:
    return f"{proto.op_type} (node {proto.name})" if proto.name else str(proto.op_type)


def constants_in(values: Sequence[Value]) -> list[jax.Array]:
    """Results as JAX takes them: known ones become constants of the program.

    Raises ProgramError for a sequence of tensors.
    """
    if any(isinstance(v, TensorSequence) for v in values):
        raise ProgramError(
            "expected results that are tensors, got a sequence of tensors; make each tensor a "
            "result of the model"
        )
    return [jax.numpy.asarray(v) for v in values]

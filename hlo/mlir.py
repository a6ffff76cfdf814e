"""MLIR modules: parsing, printing, and the functions in them as `Graph`s.

Together with `rewrite.py` the only place that touches jaxlib's MLIR bindings, whose names move
between releases. Every module owns its context: constants live as long as their context does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, cast

import numpy as np
from jax.extend import mlir as jax_mlir
from jax.extend.lowering import JaxIrContext, upstream_dialects
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from hlotune.hlo.attributes import DIMENSION_NUMBERS, FORMS, Form, defaults
from hlotune.hlo.graph import Attribute, Graph, Literal, Op, TensorType, numpy_dtype
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import ProgramError

CONSTANT_MARK = "hlotune.constant"
PORTABLE_MAGIC = b"ML\xefR\rStableHLO_v"
BYTECODE_MAGIC = b"ML\xefR"

stablehlo.register_stablehlo_passes()


@dataclass(frozen=True, slots=True)
class Module:
    """An MLIR module of func and stablehlo operations, with its own context."""

    op: Any
    """jaxlib's `ir.Module`."""

    def text(self) -> str:
        """In MLIR's own syntax; not stable between releases of jaxlib."""
        return str(self.op)

    def bytecode(self) -> bytes:
        return bytecode_of(self.op)

    def artifact(self) -> bytes:
        """A portable StableHLO artifact, as XLA takes it.  The module is not changed."""
        with self.op.context:
            copy = ir.Module.parse(self.bytecode())
            version = stablehlo.get_current_version()
            return cast(bytes, jax_mlir.serialize_portable_artifact(copy, target=version))

    def run(self, *passes: str) -> None:
        """Runs module passes, e.g. `canonicalize`, in order."""
        with self.op.context:
            PassManager.parse(f"builtin.module({','.join(passes)})").run(self.op.operation)

    def check(self, what: str) -> None:
        """Raises ProgramError where MLIR finds the module ill-formed."""
        try:
            self.op.operation.verify()
        except ir.MLIRError as error:
            reason = " ".join(str(error).split())[:500]
            raise ProgramError(f"expected {what} to be well-formed, got: {reason}") from error

    def functions(self) -> dict[str, Any]:
        """The functions of the module, by name."""
        return {
            ir.StringAttr(f.attributes["sym_name"]).value: f.operation
            for f in self.op.body.operations
            if f.operation.name == "func.func"
        }

    def function(self, name: str) -> Any:
        functions = self.functions()
        if name not in functions:
            raise ProgramError(
                f"expected a module with a function @{name}, got one with "
                f"{', '.join('@' + f for f in functions) or 'none'}; name the entry function "
                f"@{name}"
            )
        return functions[name]


def bytecode_of(module: Any) -> bytes:
    """MLIR bytecode of one of jaxlib's modules."""
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def parse(source: str | bytes) -> Module:
    """Reads StableHLO: text, MLIR bytecode or a portable artifact.

    Raises:
        ProgramError: the source is no StableHLO module.
    """
    context = _context()
    with context, ir.Location.unknown():
        try:
            if isinstance(source, bytes) and source.startswith(PORTABLE_MAGIC):
                return Module(jax_mlir.deserialize_portable_artifact(source, context))
            if isinstance(source, bytes) and not source.startswith(BYTECODE_MAGIC):
                source = source.decode()
            return Module(ir.Module.parse(source))
        except (ir.MLIRError, UnicodeDecodeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:500]
            raise ProgramError(
                "expected a StableHLO module (text, bytecode or portable artifact), got one that "
                "MLIR "
                f"refuses: {reason}; check that the file is StableHLO of a version up to "
                f"{stablehlo.get_current_version()}"
            ) from error


def _context() -> Any:
    context: Any = JaxIrContext()  # type: ignore[no-untyped-call]
    context.append_dialect_registry(upstream_dialects)
    context.load_all_available_dialects()
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context


def graph(module: Module, function: str = "main") -> Graph:
    """A function of a module as plain values; operation i of the graph is operation i of the
    function.

    Raises:
        ProgramError: no such function, or a type that hlotune does not take (dynamic, complex,
        tuple, ...).
    """
    with module.op.context:
        operation = module.function(function)
        if not operation.regions[0].blocks:
            raise ProgramError(f"expected @{function} to have a body, got a declaration; define it")
        reader = _Reader(operation.regions[0], None)
        return reader.graph(_marked(operation))


def _marked(function: Any) -> frozenset[int]:
    """Positions of the arguments marked as constants."""
    attributes = function.attributes
    marks = ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else ()
    return frozenset(i for i, a in enumerate(marks) if CONSTANT_MARK in ir.DictAttr(a))


class _Reader:
    """Numbers the values of one region while its operations are read."""

    def __init__(self, region: Any, outer: "_Reader | None") -> None:
        if len(region.blocks) != 1:
            raise ProgramError(
                f"expected regions of one block, got {len(region.blocks)} blocks; "
                "lower control flow to stablehlo.while, if or case"
            )
        self.block, self.outer = region.blocks[0], outer
        self.operations = [o.operation for o in self.block.operations][:-1]
        self.ids: dict[Any, int] = {}
        self.inner: dict[tuple[int, int], _Reader] = {}
        self.types: list[TensorType] = []
        self.captures: list[tuple[int, int]] = []

    def graph(self, marked: frozenset[int] = frozenset()) -> Graph:
        arguments = tuple(self.define(a) for a in self.block.arguments)
        ops = tuple(self.op(i) for i in range(len(self.operations)))
        results = tuple(self.use(v) for v in self.block.operations[-1].operands)
        constants = frozenset(arguments[i] for i in marked)
        return Graph(tuple(self.types), arguments, ops, results, constants, tuple(self.captures))

    def define(self, value: Any) -> int:
        number = self.ids[value] = len(self.types)
        self.types.append(tensor_type(value.type))
        return number

    def use(self, value: Any) -> int:
        if value not in self.ids:
            assert self.outer is not None, "MLIR's verifier lets no undefined value pass"
            outside = self.outer.use(value)
            self.captures.append((self.define(value), outside))
        return self.ids[value]

    def op(self, index: int) -> Op:
        operation = self.operations[index]
        operands = tuple(self.use(v) for v in operation.operands)
        regions = tuple(self.region(index, i, r) for i, r in enumerate(operation.regions))
        results = tuple(self.define(v) for v in operation.results)
        types = tuple(self.types[v] for v in operands)
        name, attributes = read_attributes(operation, types)
        return Op(name, operands, results, attributes, regions)

    def region(self, index: int, position: int, region: Any) -> Graph:
        reader = self.inner[index, position] = _Reader(region, self)
        return reader.graph()


@dataclass(slots=True)
class Numbered:
    """The operations and values of a region, numbered as in its `Graph`."""

    block: Any
    operations: list[Any]
    values: list[Any]

    def substitute(self, before: Any, after: Any) -> None:
        """Puts a value in the place of another."""
        self.values = [after if v == before else v for v in self.values]


def numbered(module: Module, function: str = "main") -> dict[tuple[int, ...], Numbered]:
    """MLIR's operations and values by region; its path is (operation, region, ...)."""
    found: dict[tuple[int, ...], Numbered] = {}
    with module.op.context:
        reader = _Reader(module.function(function).regions[0], None)
        reader.graph()
        waiting: list[tuple[tuple[int, ...], _Reader]] = [((), reader)]
        while waiting:
            path, reader = waiting.pop()
            found[path] = Numbered(reader.block, reader.operations, list(reader.ids))
            waiting += [((*path, *place), inner) for place, inner in reader.inner.items()]
    return found


@dataclass(frozen=True, slots=True)
class Signature:
    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


def signature(module: Module, function: str = "main") -> Signature:
    """The types that a function takes and gives."""
    with module.op.context:
        kind = ir.FunctionType(
            ir.TypeAttr(module.function(function).attributes["function_type"]).value
        )
        return Signature(
            tuple(tensor_type(t) for t in kind.inputs), tuple(tensor_type(t) for t in kind.results)
        )


def exportable(module: Module) -> bytes:
    """The artifact as `jax.export.Exported` holds it, with the attributes it asks for."""
    with module.op.context:
        copy = Module(ir.Module.parse(module.bytecode()))
        attributes = copy.op.operation.attributes
        one = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
        attributes["mhlo.num_partitions"] = attributes["mhlo.num_replicas"] = one
        attributes["jax.uses_shape_polymorphism"] = ir.BoolAttr.get(False)
        copy.function("main").attributes["sym_visibility"] = ir.StringAttr.get("public")
        return copy.artifact()


def tensor_type(mlir_type: Any) -> TensorType:
    """Raises ProgramError for what hlotune does not take, saying what it is."""
    if not isinstance(mlir_type, ir.RankedTensorType):
        raise ProgramError(
            f"expected values to be tensors, got {mlir_type}; tuples, tokens and unranked values "
            "are not supported"
        )
    shaped = ir.RankedTensorType(mlir_type)
    if not shaped.has_static_shape or shaped.encoding is not None:
        raise ProgramError(
            f"expected static shapes, got {mlir_type}; lower the program with the sizes it is to "
            "be tuned for"
        )
    dtype = str(shaped.element_type)
    if dtype not in BYTES:
        raise ProgramError(
            f"expected element types {', '.join(BYTES)}, got {mlir_type}; "
            f"{dtype} is not supported: convert such values outside of the program"
        )
    return TensorType(tuple(shaped.shape), dtype)


def read_attributes(
    operation: Any, operands: Sequence[TensorType]
) -> tuple[str, tuple[tuple[str, Attribute], ...]]:
    """Name and attributes: defaults filled in, dimension numbers flattened, noise left out."""
    name, raw = operation.name, operation.attributes
    if name == "stablehlo.dot":
        return "stablehlo.dot_general", _legacy_dot(len(operands[0].shape), raw)
    forms = FORMS.get(name)
    read: dict[str, Attribute] = {}
    for key in raw:
        form = forms.get(key) if forms else None
        if form is not None:
            read |= _read(form, key, raw[key])
        elif name == "stablehlo.custom_call" or _is_meaningful(name, key, str(raw[key])):
            read[key] = str(raw[key])
    if name == "stablehlo.sort" and read.get("dimension") == -1:
        del read["dimension"]
    window = read.get("input_spatial_dimensions", read.get("window_dimensions", ()))
    filled = defaults(name, tuple(operands), len(cast(tuple[int, ...], window)))
    if read.get("compare_type") == "NOTYPE":
        del read["compare_type"]
    return name, tuple(sorted((filled | read).items()))


def _legacy_dot(lhs_rank: int, raw: Any) -> tuple[tuple[str, Attribute], ...]:
    """`stablehlo.dot` sums the last dimension of the left over the first of the right."""
    dimensions: dict[str, Attribute] = dict.fromkeys(DIMENSION_NUMBERS["dot"], ())
    dimensions |= {
        "lhs_contracting_dimensions": (lhs_rank - 1,),
        "rhs_contracting_dimensions": (0,),
    }
    if "precision_config" in raw:
        dimensions |= _read("precisions", "precision_config", raw["precision_config"])
    return tuple(sorted(dimensions.items()))


def _is_meaningful(name: str, key: str, text: str) -> bool:
    """Whether an attribute outside the tables may change what an operation computes."""
    if key == "result_accuracy":
        return "DEFAULT" not in text
    if key in ("result_layout", "xla_shape", "frontend_attributes"):
        return False
    return "." not in key


def _read(form: Form, key: str, value: Any) -> dict[str, Attribute]:
    if form in DIMENSION_NUMBERS:
        return _dimension_numbers(form, value)
    if form == "precisions":
        kinds = tuple(_enum(a) for a in ir.ArrayAttr(value))
        return {key: kinds} if set(kinds) - {"DEFAULT"} else {}
    return {key: _read_value(form, value)}


def _read_value(form: Form, value: Any) -> Attribute:
    if form in ("i64", "i32"):
        return int(ir.IntegerAttr(value).value)
    if form == "f32":
        return float(ir.FloatAttr(value).value)
    if form == "bool":
        return bool(ir.BoolAttr(value).value)
    if form == "i64s":
        return tuple(int(x) for x in ir.DenseI64ArrayAttr(value))
    if form == "bools":
        return tuple(bool(x) for x in ir.DenseBoolArrayAttr(value))
    if form == "pairs":
        pairs = np.array(ir.DenseIntElementsAttr(value)).reshape(-1, 2)
        return tuple((int(low), int(high)) for low, high in pairs)
    if form == "constant":
        return literal(value)
    return str(value) if form == "raw" else _enum(value)


def _enum(value: Any) -> str:
    """`LT` of `#stablehlo<comparison_direction LT>`."""
    return str(value).rstrip(">").rsplit(maxsplit=1)[-1]


def _dimension_numbers(form: Form, value: Any) -> dict[str, Attribute]:
    classes = {
        "dot": stablehlo.DotDimensionNumbers,
        "conv": stablehlo.ConvDimensionNumbers,
        "gather": stablehlo.GatherDimensionNumbers,
        "scatter": stablehlo.ScatterDimensionNumbers,
    }
    numbers = classes[form](value)
    # jaxlib's binding spells this one field of scatter otherwise than MLIR does
    spelled = {"scatter_dims_to_operand_dims": "scattered_dims_to_operand_dims"}
    fields = {key: getattr(numbers, spelled.get(key, key)) for key in DIMENSION_NUMBERS[form]}
    return {k: v if isinstance(v, int) else tuple(v) for k, v in fields.items()}


def literal(value: Any) -> Literal:
    """The value of a constant; its bytes never go through decimal text."""
    kind = tensor_type(value.type)
    if not isinstance(value, ir.DenseElementsAttr):
        raise ProgramError(
            f"expected constants to be dense elements, got {str(value)[:80]}; write the values "
            "into the module"
        )
    splat = bool(value.is_splat) and kind.shape != ()  # a scalar is just its one element
    if kind.dtype == "bf16":
        return Literal(kind, _bfloat16_bytes(value), splat)
    array = np.asarray(value).astype(numpy_dtype(kind.dtype), copy=False)
    return Literal(kind, array.reshape(-1)[:1].tobytes() if splat else array.tobytes(), splat)


def _bfloat16_bytes(value: Any) -> bytes:
    """The elements of a bf16 constant, or the one of a splat.

    jaxlib gives no buffer for them.  MLIR prints long lists as one hexadecimal string, and short
    ones element by element, in decimal only where that reads back to the same bits.
    """
    text = str(value)
    if text.startswith('dense<"0x'):
        return bytes.fromhex(text.split('"')[1][2:])
    body = text[: text.rindex("> :")].removeprefix("dense<")
    elements = re.findall(r"0x[0-9A-F]+|-?[0-9.]+(?:e[+-]?[0-9]+)?", body)
    return b"".join(
        int(e, 16).to_bytes(2, "little")
        if e.startswith("0x")
        else np.array(float(e), numpy_dtype("bf16")).tobytes()
        for e in elements
    )

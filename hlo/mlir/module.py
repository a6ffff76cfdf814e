"""MLIR modules: parsing, printing, and the functions in them as `Graph`s.

Every module keeps its context, and constants live as long as that does.
"""

import re
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.mlir.values import read_attributes, tensor_type
from hlotune.hlo.mlir.versions import (
    PassManager,
    ir,
    new_context,
    portable_artifact,
    read_portable_artifact,
    stablehlo,
)
from hlotune.hlo.mlir.weights import Weights, literal_of, number_of
from hlotune.schedules.errors import ProgramError

CONSTANT_MARK = "hlotune.constant"
BYTECODE_MAGIC = b"ML\xefR"
_QUANTIZED = re.compile(r"^(?!\s*//).*?(tensor<[^<>\"]*!quant\.\w+<[^>\"]*>)", re.MULTILINE)
PORTABLE_MAGIC = re.compile(BYTECODE_MAGIC + rb".StableHLO_v", re.DOTALL)
"""The byte between them is the version of MLIR's bytecode, older for older StableHLO."""
_ANY_PROGRAM = re.compile(r"\b(module|func|stablehlo|mhlo|builtin)\b")
"""What MLIR text of a program has somewhere."""
_WRITTEN = re.compile(BYTECODE_MAGIC + rb".StableHLO_v([\d.]{1,20})", re.DOTALL)
LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Module:
    """An MLIR module of func and stablehlo operations, and with it its context."""

    op: Any
    """jaxlib's `ir.Module`."""

    def text(self) -> str:
        """The module in MLIR's own syntax, which is not stable between releases of jaxlib."""
        return str(self.op)

    def bytecode(self) -> bytes:
        return bytecode_of(self.op)

    def artifact(self) -> bytes:
        """A portable StableHLO artifact, as XLA takes it.  The module is not changed."""
        with self.op.context:
            return portable_artifact(self.op)

    def run(self, *passes: str) -> None:
        """Runs module passes, e.g. `canonicalize`, in order.

        Raises:
            ProgramError: a pass fails; MLIR's first words name the operation.
        """
        with self.op.context:
            try:
                PassManager.parse(f"builtin.module({','.join(passes)})").run(self.op.operation)
            except ir.MLIRError as error:
                reason = " ".join(str(error).split()).partition(" note: ")[0]
                reason = reason.removeprefix("Failure while executing pass pipeline: ")[:300]
                raise ProgramError(
                    f"expected operations that MLIR's passes ({', '.join(passes)}) take, got: "
                    f"{reason}; write that operation in terms of others"
                ) from error

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


def copied(module: Any) -> Module:
    """A copy of one of jaxlib's modules in its context, where the two share all constants."""
    with module.context, ir.Location.unknown():
        copy = ir.Module.create()
        for name in module.operation.attributes:
            copy.operation.attributes[name] = module.operation.attributes[name]
        with ir.InsertionPoint(copy.body):
            for operation in module.body.operations:
                operation.operation.clone()
        return Module(copy)


STABLEHLO = "a StableHLO module (text, bytecode or portable artifact)"


def parse(source: str | bytes, expected: str = STABLEHLO) -> Module:
    """Reads StableHLO: text, MLIR bytecode or a portable artifact.

    Args:
        expected: what an error says that was expected.

    Raises:
        ProgramError: the source is no StableHLO module.
    """
    context = new_context()
    with context, ir.Location.unknown():
        try:
            if isinstance(source, bytes) and PORTABLE_MAGIC.match(source):
                return Module(read_portable_artifact(source, context))
            if isinstance(source, bytes) and not source.startswith(BYTECODE_MAGIC):
                source = source.decode()
            if isinstance(source, str):
                _refuse_other_text(source, expected)
                _refuse_quantized(source)
            return Module(ir.Module.parse(source))
        except ProgramError:
            raise
        except (ir.MLIRError, UnicodeDecodeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:500]
            if isinstance(error, UnicodeDecodeError):
                reason = _not_text(error)
            raise ProgramError(
                f"expected {expected}, got one that MLIR refuses: {reason}; check that the file is "
                f"StableHLO of a version from {stablehlo.get_minimum_version()} to "
                f"{stablehlo.get_current_version()}{_written_as(source)}"
            ) from error


def _refuse_other_text(source: str, expected: str) -> None:
    if not _ANY_PROGRAM.search(source):
        raise ProgramError(
            f"expected {expected}, got a text that begins {source.lstrip()[:30]!r} and has no "
            "function or module in it; name the file of a program"
        )


def _written_as(source: str | bytes) -> str:
    """The version that a portable artifact says it has; the operations in it may be younger."""
    found = _WRITTEN.match(source) if isinstance(source, bytes) else None
    if found is None:
        return ""
    return (
        f": it says {found[1].decode()}; export it again by a version of JAX that is about as old, "
        "or write it again where it may be cut off"
    )


def exported_module(data: bytes) -> bytes:
    """The portable artifact in what `jax.export` serializes; other data as it is.

    That is a FlatBuffer, which has the length of the artifact in the four bytes ahead of it.  It is
    written from its end: the function is the last artifact, behind its derivatives where
    `serialize(vjp_order=1)` kept them.
    """
    artifact, end = data, 0
    while (found := PORTABLE_MAGIC.search(data, end)) is not None:
        start = found.start()
        length = int.from_bytes(data[max(start - LENGTH_BYTES, 0) : start], "little")
        end = start + length
        if start < LENGTH_BYTES or length < len(found[0]) or end > len(data):
            break
        artifact = data[start:end]
    return artifact


def _refuse_quantized(text: str) -> None:
    """Raises ProgramError for quantized types, before MLIR sees them: its parser ends the process
    at some.
    """
    if "!quant." in text and (found := _QUANTIZED.search(text)) is not None:
        raise ProgramError(
            f"expected values of plain element types, got {found[1]}>, a quantized one; XLA "
            "computes with none: write the program with the integers and scales that it means "
            "(stablehlo-opt --stablehlo-legalize-quant-to-math does so)"
        )


def _not_text(error: UnicodeDecodeError) -> str:
    before = error.object[: error.start].decode()
    if not before or not all(c.isprintable() or c in "\n\r\t" for c in before[:1000]):
        return "it is neither text nor MLIR bytecode"
    line = before.count("\n") + 1
    return f"line {line} has the byte {error.object[error.start]:#04x}, so it is not text in UTF-8"


def graph(module: Module, function: str = "main", weights: Weights = ()) -> Graph:
    """A function of a module as plain values; operation i of the graph is operation i of the
    function.  Weights that lie beside the module are constants there.

    Raises:
        ProgramError: no such function, or a type that hlotune does not take (dynamic, complex,
        tuple, ...).
    """
    with module.op.context:
        operation = module.function(function)
        if not operation.regions[0].blocks:
            raise ProgramError(f"expected @{function} to have a body, got a declaration; define it")
        reader = _Reader(operation.regions[0], None, weights)
        return reader.graph(_marked(operation))


def _marked(function: Any) -> frozenset[int]:
    """Positions of the arguments marked as constants."""
    attributes = function.attributes
    marks = ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else ()
    return frozenset(i for i, a in enumerate(marks) if CONSTANT_MARK in ir.DictAttr(a))


class _Reader:
    """Numbers the values of one region while its operations are read.

    Where only places are asked for (`attributes` is False), operations have no attributes: to read
    those of constants copies all weights.
    """

    def __init__(
        self,
        region: Any,
        outer: "_Reader | None",
        weights: Weights = (),
        attributes: bool = True,
    ) -> None:
        if len(region.blocks) != 1:
            raise ProgramError(
                f"expected regions of one block, got {len(region.blocks)} blocks; "
                "lower control flow to stablehlo.while, if or case"
            )
        self.block, self.outer, self.weights = region.blocks[0], outer, weights
        self.attributes = attributes
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
        if not self.attributes:
            return Op(operation.name, operands, results, (), regions)
        number = number_of(operation)
        if number is not None and number < len(self.weights):
            value = literal_of(self.types[results[0]], self.weights, number)
            return Op("stablehlo.constant", (), results, (("value", value),))
        types = tuple(self.types[v] for v in operands)
        name, attributes = read_attributes(operation, types)
        return Op(name, operands, results, attributes, regions)

    def region(self, index: int, position: int, region: Any) -> Graph:
        reader = _Reader(region, self, self.weights, self.attributes)
        self.inner[index, position] = reader
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
        reader = _Reader(module.function(function).regions[0], None, attributes=False)
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
    """The artifact as `jax.export.Exported` holds it, with the attributes it asks for, which the
    module has from then on."""
    with module.op.context:
        attributes = module.op.operation.attributes
        one = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
        attributes["mhlo.num_partitions"] = attributes["mhlo.num_replicas"] = one
        attributes["jax.uses_shape_polymorphism"] = ir.BoolAttr.get(False)
        module.function("main").attributes["sym_visibility"] = ir.StringAttr.get("public")
        return module.artifact()

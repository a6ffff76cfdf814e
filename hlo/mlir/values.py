"""MLIR's types, attributes and constants as values of ours, for the graphs of `module.py`."""

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Attribute, Literal, TensorType, numpy_dtype
from hlotune.hlo.mlir.attributes import DIMENSION_NUMBERS, FORMS, Form, defaults
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.schedules.dtypes import BYTES, GROUPS, XLA_ALONE, has_kernels
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.large_pages import ALIGNMENT

TYPES = (*(d for d in BYTES if d not in GROUPS), *XLA_ALONE)
"""Element types that a program may have."""
ALIGNED_BYTES = 1 << 16
"""Constants of so many bytes lie where they are packed from as they are, without another copy."""


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
    if dtype not in TYPES:
        raise ProgramError(
            f"expected element types {', '.join(TYPES)}, got {mlir_type}; {dtype} is not "
            "supported: convert such values outside of the program"
        )
    return TensorType(tuple(shaped.shape), dtype)


def read_attributes(
    operation: Any, operands: Sequence[TensorType]
) -> tuple[str, tuple[tuple[str, Attribute], ...]]:
    """Name and attributes: defaults filled in, dimension numbers flattened, noise left out."""
    name, raw = operation.name, operation.attributes
    if name == "stablehlo.constant":
        return name, (("value", _constant(operation)),)
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


def _constant(operation: Any) -> Literal | str:
    """The value of a constant; of a type that kernels do not have it is MLIR's text."""
    if has_kernels(tensor_type(operation.results[0].type).dtype):
        return literal(operation.attributes["value"])
    return str(operation).partition(operation.name)[2].strip()


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
    if splat or array.nbytes < ALIGNED_BYTES:
        return Literal(kind, array.reshape(-1)[:1].tobytes() if splat else array.tobytes(), splat)
    return Literal(kind, _aligned_copy(array), splat)


def _aligned_copy(array: NDArray[Any]) -> memoryview:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    place = memory[start : start + array.nbytes]
    place.view(array.dtype).reshape(array.shape)[...] = array
    return memoryview(place).toreadonly()  # type: ignore[arg-type]


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

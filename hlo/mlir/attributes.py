"""Which attributes of an operation carry meaning, their defaults, and how MLIR spells them.

`values.py` reads attributes by these tables, `canonical.py` prints by them.  An attribute that
no table knows is kept as the text MLIR prints for it (form `raw`), so nothing that might matter is
lost.
"""

from collections.abc import Callable, Mapping
from typing import Literal, cast

import numpy as np

from hlotune.hlo.graph import Attribute, Op, TensorType, numpy_dtype
from hlotune.hlo.graph import Literal as Constant
from hlotune.schedules.dtypes import is_float, is_unsigned

Form = Literal[
    "i64", "i32", "f32", "bool", "i64s", "bools", "pairs", "constant", "precisions", "raw",
    "comparison_direction", "comparison_type", "fft_type", "transpose", "rng_distribution",
    "rng_algorithm", "dot", "conv", "gather", "scatter",
]  # fmt: skip

WINDOW: dict[str, Form] = {
    "window_dimensions": "i64s",
    "window_strides": "i64s",
    "base_dilations": "i64s",
    "window_dilations": "i64s",
    "padding": "pairs",
}
BATCH_NORM: dict[str, Form] = {"epsilon": "f32", "feature_index": "i64"}

FORMS: dict[str, dict[str, Form]] = {
    "stablehlo.constant": {"value": "constant"},
    "stablehlo.iota": {"iota_dimension": "i64"},
    "stablehlo.broadcast_in_dim": {"broadcast_dimensions": "i64s"},
    "stablehlo.transpose": {"permutation": "i64s"},
    "stablehlo.reverse": {"dimensions": "i64s"},
    "stablehlo.slice": {"start_indices": "i64s", "limit_indices": "i64s", "strides": "i64s"},
    "stablehlo.dynamic_slice": {"slice_sizes": "i64s"},
    "stablehlo.pad": {
        "edge_padding_low": "i64s",
        "edge_padding_high": "i64s",
        "interior_padding": "i64s",
    },
    "stablehlo.concatenate": {"dimension": "i64"},
    "stablehlo.sort": {"dimension": "i64", "is_stable": "bool"},
    "stablehlo.reduce": {"dimensions": "i64s"},
    "stablehlo.map": {"dimensions": "i64s"},
    "stablehlo.reduce_window": WINDOW,
    "stablehlo.select_and_scatter": {
        name: WINDOW[name] for name in ("window_dimensions", "window_strides", "padding")
    },
    "stablehlo.reduce_precision": {"exponent_bits": "i32", "mantissa_bits": "i32"},
    "stablehlo.compare": {
        "comparison_direction": "comparison_direction",
        "compare_type": "comparison_type",
    },
    "stablehlo.dot_general": {
        "dot_dimension_numbers": "dot",
        "precision_config": "precisions",
        "algorithm": "raw",
    },
    "stablehlo.convolution": {
        "dimension_numbers": "conv",
        "window_strides": "i64s",
        "padding": "pairs",
        "lhs_dilation": "i64s",
        "rhs_dilation": "i64s",
        "window_reversal": "bools",
        "feature_group_count": "i64",
        "batch_group_count": "i64",
        "precision_config": "precisions",
    },
    "stablehlo.gather": {
        "dimension_numbers": "gather",
        "slice_sizes": "i64s",
        "indices_are_sorted": "bool",
    },
    "stablehlo.scatter": {
        "scatter_dimension_numbers": "scatter",
        "indices_are_sorted": "bool",
        "unique_indices": "bool",
    },
    "stablehlo.batch_norm_inference": BATCH_NORM,
    "stablehlo.batch_norm_training": BATCH_NORM,
    "stablehlo.batch_norm_grad": BATCH_NORM,
    "stablehlo.cholesky": {"lower": "bool"},
    "stablehlo.triangular_solve": {
        "left_side": "bool",
        "lower": "bool",
        "unit_diagonal": "bool",
        "transpose_a": "transpose",
    },
    "stablehlo.fft": {"fft_type": "fft_type", "fft_length": "i64s"},
    "stablehlo.rng": {"rng_distribution": "rng_distribution"},
    "stablehlo.rng_bit_generator": {"rng_algorithm": "rng_algorithm"},
    "stablehlo.get_tuple_element": {"index": "i32"},
    "chlo.top_k": {"k": "i64"},
}

DIMENSION_NUMBERS: dict[str, tuple[str, ...]] = {
    "dot": (
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "conv": (
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
    ),
    "gather": (
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    ),
    "scatter": (
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    ),
}


def defaults(name: str, operands: tuple[TensorType, ...], window: int) -> dict[str, Attribute]:
    """Attributes that an operation has when they are not written.

    `window` is the number of window dimensions of a convolution or of a windowed reduction.
    """
    ones, no_padding = (1,) * window, ((0, 0),) * window
    if name == "stablehlo.convolution":
        return {
            "window_strides": ones,
            "padding": no_padding,
            "lhs_dilation": ones,
            "rhs_dilation": ones,
            "window_reversal": (False,) * window,
            "feature_group_count": 1,
            "batch_group_count": 1,
        }
    if name == "stablehlo.reduce_window":
        strides = ("window_strides", "base_dilations", "window_dilations")
        return {**dict.fromkeys(strides, ones), "padding": no_padding}
    if name == "stablehlo.select_and_scatter":
        return {"window_strides": ones, "padding": no_padding}
    if name == "stablehlo.sort":
        return {"dimension": len(operands[0].shape) - 1, "is_stable": False}
    if name == "stablehlo.compare":
        return {"compare_type": comparison_type(operands[0].dtype)}
    flags: dict[str, dict[str, Attribute]] = {
        "stablehlo.gather": {"indices_are_sorted": False},
        "stablehlo.scatter": {"indices_are_sorted": False, "unique_indices": False},
        "stablehlo.cholesky": {"lower": False},
    }
    return flags.get(name, {})


def comparison_type(dtype: str) -> str:
    """The comparison that StableHLO means for a type when none is named."""
    if is_float(dtype) or dtype.startswith(("f", "complex")):
        return "FLOAT"
    return "UNSIGNED" if is_unsigned(dtype) else "SIGNED"


def spell(op: Op, constant: Callable[[Constant], str]) -> tuple[str, str]:
    """The inherent and the discardable attributes of an operation as MLIR reads them, each sorted
    by name.

    `("a = 1 : i64, b = true", "")`; `constant` spells the values of constants.
    """
    left = dict(op.attributes)
    written: dict[str, str] = {}
    for attribute, form in FORMS.get(op.name, {}).items():
        if form in DIMENSION_NUMBERS:
            numbers = {key: left.pop(key) for key in DIMENSION_NUMBERS[form]}
            written[attribute] = DIMENSION_SPELLINGS[form](numbers)
        elif form == "constant":
            value = left.pop(attribute)
            written[attribute] = constant(value) if isinstance(value, Constant) else str(value)
        elif attribute in left:
            written[attribute] = _spell_value(form, left.pop(attribute))
    written.update((key, str(value)) for key, value in left.items())
    dotted = [key for key in sorted(written) if "." in key]
    plain = [key for key in sorted(written) if "." not in key]
    inherent, discardable = (", ".join(f"{k} = {written[k]}" for k in ks) for ks in (plain, dotted))
    return inherent, discardable


def _spell_value(form: Form, value: Attribute) -> str:
    if form in ("i64", "i32"):
        return f"{value} : {form}"
    if form == "f32":
        return f"{_float(np.float32(cast(float, value)))} : f32"
    if form == "bool":
        return _bool(value)
    if form in ("i64s", "bools"):
        return _array(form, cast(tuple[int, ...], value))
    if form == "pairs":
        pairs = cast(tuple[tuple[int, int], ...], value)
        body = f"[{', '.join(f'[{low}, {high}]' for low, high in pairs)}]" if pairs else ""
        return f"dense<{body}> : tensor<{len(pairs)}x2xi64>"
    if form == "precisions":
        return f"[{', '.join(f'#stablehlo<precision {p}>' for p in cast(tuple[str, ...], value))}]"
    return str(value) if form == "raw" else f"#stablehlo<{form} {value}>"


def _bool(value: object) -> str:
    return "true" if value else "false"


def _array(form: Form, values: tuple[int, ...]) -> str:
    element, items = ("i1", map(_bool, values)) if form == "bools" else ("i64", map(str, values))
    return f"array<{element}: {', '.join(items)}>" if values else f"array<{element}>"


def _spell_dot(numbers: Mapping[str, Attribute]) -> str:
    return f"#stablehlo.dot<{_fields(numbers)}>"


def _spell_gather(numbers: Mapping[str, Attribute]) -> str:
    return f"#stablehlo.gather<{_fields(numbers)}>"


def _spell_scatter(numbers: Mapping[str, Attribute]) -> str:
    return f"#stablehlo.scatter<{_fields(numbers)}>"


def _fields(numbers: Mapping[str, Attribute]) -> str:
    """`a = [0], index_vector_dim = 1`: empty lists are left out, as MLIR does."""
    return ", ".join(
        f"{key} = {list(value) if isinstance(value, tuple) else value}"
        for key, value in numbers.items()
        if value != ()
    )


def _spell_conv(numbers: Mapping[str, Attribute]) -> str:
    """`#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""
    letters = {
        "input": {"b": "input_batch_dimension", "f": "input_feature_dimension"},
        "kernel": {"i": "kernel_input_feature_dimension", "o": "kernel_output_feature_dimension"},
        "output": {"b": "output_batch_dimension", "f": "output_feature_dimension"},
    }
    parts = []
    for side, names in letters.items():
        spatial = cast(tuple[int, ...], numbers[f"{side}_spatial_dimensions"])
        places = {dimension: str(i) for i, dimension in enumerate(spatial)}
        places |= {cast(int, numbers[key]): letter for letter, key in names.items()}
        parts.append(f"[{', '.join(places[d] for d in sorted(places))}]")
    return f"#stablehlo.conv<{parts[0]}x{parts[1]}->{parts[2]}>"


DIMENSION_SPELLINGS: dict[str, Callable[[Mapping[str, Attribute]], str]] = {
    "dot": _spell_dot,
    "conv": _spell_conv,
    "gather": _spell_gather,
    "scatter": _spell_scatter,
}


def constant(literal: Constant) -> str:
    """`dense<[1.0, 2.0]> : tensor<2xf32>`; every value parses back to the same bits."""
    flat = np.frombuffer(literal.data, dtype=numpy_dtype(literal.type.dtype))
    texts = [_element(x) for x in flat]
    if not literal.splat and literal.type.shape:
        texts = _nest(texts, literal.type.shape)
    return f"dense<{texts[0] if texts else ''}> : {literal.type}"


def _nest(texts: list[str], shape: tuple[int, ...]) -> list[str]:
    for extent in reversed(shape):
        if extent == 0:
            return []
        rows = [texts[i : i + extent] for i in range(0, len(texts), extent)]
        texts = [f"[{', '.join(row)}]" for row in rows]
    return texts


def _element(x: np.generic) -> str:
    if x.dtype == np.bool_:
        return _bool(x)
    return str(int(cast(int, x))) if x.dtype.kind in "iu" else _float(x)


def _float(x: np.generic) -> str:
    """Decimal where reading it as a double and rounding gives the same bits, else the bits."""
    value = float(cast(float, x))
    if np.isfinite(value):
        short = f"{value:.6g}"
        text = short if x.dtype.type(float(short)) == x else repr(value)
        mantissa, e, exponent = text.partition("e")
        return mantissa + ("" if "." in mantissa else ".0") + e + exponent
    return f"0x{int.from_bytes(x.tobytes(), 'little'):0{2 * x.dtype.itemsize}X}"

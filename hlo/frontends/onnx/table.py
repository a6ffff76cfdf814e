"""The table of operators: one row each, from the files of their families."""

from collections.abc import Mapping

from hlotune.hlo.frontends.onnx import (
    activations,
    control_flow,
    convolutions,
    elementwise,
    images,
    indexing,
    normalizations,
    pools,
    products,
    quantization,
    recurrent,
    reductions,
    resizing,
    sequences,
    shapes,
    signals,
    types,
)
from hlotune.hlo.frontends.onnx.nodes import Operator

OPERATORS: Mapping[str, Operator] = {
    **activations.ROWS,
    **control_flow.ROWS,
    **convolutions.ROWS,
    **elementwise.ROWS,
    **images.ROWS,
    **indexing.ROWS,
    **normalizations.ROWS,
    **pools.ROWS,
    **products.ROWS,
    **quantization.ROWS,
    **recurrent.ROWS,
    **reductions.ROWS,
    **resizing.ROWS,
    **sequences.ROWS,
    **shapes.ROWS,
    **signals.ROWS,
    **types.ROWS,
}
"""By name; those of other domains than ONNX's own have the domain before it."""

_VALUES = (
    "whose result has a shape that depends on values",
    "hlotune takes static shapes: leave it out of the model, and do it outside",
)
_RANDOM = ("which draws random numbers", "draw them outside, and give them as an input")
_TEXTS = ("which works on texts", "do it outside, and give numbers as an input")
LEFT_OUT: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("Compress", "NonMaxSuppression", "NonZero", "Unique"), _VALUES),
    **dict.fromkeys(
        (
            "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
            "RandomUniformLike",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        _TEXTS,
    ),
    "SequenceMap": ("which works on sequences of tensors", "write out its calls"),
    "Optional": ("which makes optional values", "export the model without them"),
    "ImageDecoder": ("which decodes files of images", "decode them outside of the model"),
}  # fmt: skip
"""Operators that hlotune will not compute: why, and what to do."""

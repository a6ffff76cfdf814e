"""Element types, by their StableHLO names."""

GROUPS: dict[str, tuple[str, int]] = {"bf16x2": ("bf16", 2), "i8x4": ("i8", 4), "ui8x4": ("ui8", 4)}
"""Neighbours that dot instructions take as one element: what of, and how many."""

BYTES: dict[str, int] = {
    "f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i1": 1,
    "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ui8": 1, "ui16": 2, "ui32": 4, "ui64": 8,
    "bf16x2": 4, "i8x4": 4, "ui8x4": 4,
}  # fmt: skip

XLA_ALONE: dict[str, str] = {
    "complex<f32>": "complex64", "complex<f64>": "complex128",
    "i2": "int2", "i4": "int4", "ui2": "uint2", "ui4": "uint4",
    "f4E2M1FN": "float4_e2m1fn", "f8E3M4": "float8_e3m4", "f8E4M3": "float8_e4m3",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz", "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
}  # fmt: skip
"""Types that programs may have and kernels of ours may not, and their names in NumPy."""


def has_kernels(dtype: str) -> bool:
    """Whether kernels of ours compute with elements of the type."""
    return dtype in BYTES


def is_float(dtype: str) -> bool:
    return dtype in ("f64", "f32", "bf16", "f16")


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("ui") or dtype == "i1"


def accumulator(dtype: str) -> str:
    """The type in which a reduction with results of `dtype` is carried out.

    Narrow floats lose a bit a term, so they accumulate in f32; integers wrap, so their own type is
    exact.
    """
    return "f32" if dtype in ("bf16", "f16") else dtype

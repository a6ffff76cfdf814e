"""Scalar and vector values in LLVM text: types, constants, conversions, comparisons.

A value of type bf16 or f16 is held as a float that has been rounded to it; in memory it has its own
width.  A value has one lane or as many as the vectors of its stage.
"""

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from math import copysign
from pathlib import Path

from hlotune.codegen.llvm.function import Function
from hlotune.schedules.dtypes import BYTES, is_float, is_unsigned

HELD = {
    "f64": "double", "f32": "float", "bf16": "float", "f16": "float",
    "i1": "i1", "i8": "i8", "ui8": "i8", "i16": "i16", "ui16": "i16",
    "i32": "i32", "ui32": "i32", "i64": "i64", "ui64": "i64",
    "bf16x2": "i32", "i8x4": "i32", "ui8x4": "i32",
}  # fmt: skip
STORED = HELD | {"bf16": "i16", "f16": "half", "i1": "i8"}
ZEROS = ("0", "0x0000000000000000")


@dataclass(frozen=True, slots=True)
class Value:
    """`name` is an SSA name or a literal; `known` its number where that is known while emitting."""

    name: str
    dtype: str
    lanes: int
    known: float | int | None = None

    @property
    def type(self) -> str:
        return vector(HELD[self.dtype], self.lanes)


@cache
def vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(element: str, lanes: int) -> str:
    """How intrinsics name a type: `v16f32`."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(number: float | int | bool, dtype: str, lanes: int) -> Value:
    return _literal(number, dtype, lanes, copysign(1.0, number))


@lru_cache(maxsize=4096)
def _literal(number: float | int | bool, dtype: str, lanes: int, sign: float) -> Value:
    """`sign` tells zeros apart, which are equal."""
    element = HELD[dtype]
    if is_float(dtype):
        rounded = (
            float(number)
            if dtype == "f64"
            else struct.unpack("f", struct.pack("f", _single(number)))[0]
        )
        text = f"0x{struct.unpack('Q', struct.pack('d', rounded))[0]:016X}"
    else:
        text = str(int(number))
        number = int(number)
    if lanes > 1:
        text = "zeroinitializer" if text in ZEROS else f"splat ({element} {text})"
    return Value(text, dtype, lanes, number)


def _single(number: float | int) -> float:
    """The number, or infinity where it lies beyond f32."""
    value = float(number)
    return (
        value
        if abs(value) <= 3.4028235e38 or value != value
        else float("inf") * (1 if value > 0 else -1)
    )


def splat(f: Function, value: Value, lanes: int) -> Value:
    if value.lanes == lanes:
        return value
    if value.known is not None:
        return literal(value.known, value.dtype, lanes)
    wide = vector(HELD[value.dtype], lanes)
    one = f.once(f"insertelement {wide} poison, {value.type} {value.name}, i32 0")
    many = f.once(f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer")
    return Value(many, value.dtype, lanes)


def from_memory(f: Function, name: str, dtype: str, lanes: int) -> Value:
    """What a load of the stored type gives, as a held value."""
    if dtype == "bf16":
        wide = f.op(f"zext {vector('i16', lanes)} {name} to {vector('i32', lanes)}")
        high = f.op(f"shl {vector('i32', lanes)} {wide}, {_integer(16, 'i32', lanes)}")
        name = f.op(f"bitcast {vector('i32', lanes)} {high} to {vector('float', lanes)}")
    elif dtype == "f16":
        name = _extended(f, name, lanes)
    elif dtype == "i1":
        name = f.op(f"icmp ne {vector('i8', lanes)} {name}, {_integer(0, 'i8', lanes)}")
    return Value(name, dtype, lanes)


def grouped(f: Function, parts: list[Value], dtype: str) -> Value:
    """Integers of few bits side by side in lanes of 32, the first lowest."""
    lanes = max(p.lanes for p in parts)
    wide, bits = vector("i32", lanes), 32 // len(parts)
    total = ""
    for k, part in enumerate(splat(f, p, lanes) for p in parts):
        name = f.op(f"zext {part.type} {part.name} to {wide}")
        name = f.op(f"shl {wide} {name}, {_integer(bits * k, 'i32', lanes)}") if k else name
        total = f.op(f"or {wide} {total}, {name}") if total else name
    return Value(total, dtype, lanes)


def to_memory(f: Function, value: Value) -> str:
    """A held value in its stored type; bf16 and f16 were rounded when they were made."""
    wide, lanes = value.type, value.lanes
    if value.dtype == "bf16":
        bits = f.op(f"bitcast {wide} {value.name} to {vector('i32', lanes)}")
        high = f.op(f"lshr {vector('i32', lanes)} {bits}, {_integer(16, 'i32', lanes)}")
        return f.op(f"trunc {vector('i32', lanes)} {high} to {vector('i16', lanes)}")
    if value.dtype == "f16":
        return _halved(f, value.name, lanes)
    if value.dtype == "i1":
        return f.op(f"zext {wide} {value.name} to {vector('i8', lanes)}")
    return value.name


def _integer(number: int, element: str, lanes: int) -> str:
    return str(number) if lanes == 1 else f"splat ({element} {number})"


def _halved(f: Function, name: str, lanes: int) -> str:
    f.module.declare("half", _half_functions())
    return f.op(f"fptrunc {vector('float', lanes)} {name} to {vector('half', lanes)}")


def _extended(f: Function, name: str, lanes: int) -> str:
    f.module.declare("half", _half_functions())
    return f.op(f"fpext {vector('half', lanes)} {name} to {vector('float', lanes)}")


@cache
def _half_functions() -> str:
    return Path(__file__).with_name("half.ll").read_text(encoding="utf-8")


def convert(f: Function, value: Value, dtype: str) -> Value:
    """StableHLO's convert; to integers it saturates, and what is no number becomes 0."""
    if value.dtype == dtype:
        return value
    if dtype == "i1":
        return compare(f, "NE", value, literal(0, value.dtype, value.lanes))
    if is_float(dtype):
        return _to_float(f, value, dtype)
    if not is_float(value.dtype):
        return Value(_resize(f, value, HELD[dtype]), dtype, value.lanes)
    source, wide = HELD[value.dtype], vector(HELD[dtype], value.lanes)
    how = "fptoui" if is_unsigned(dtype) else "fptosi"
    kind = f"llvm.{how}.sat.{suffix(HELD[dtype], value.lanes)}.{suffix(source, value.lanes)}"
    return Value(f.intrinsic(kind, wide, (value.type, value.name)), dtype, value.lanes)


def _to_float(f: Function, value: Value, dtype: str) -> Value:
    if dtype in ("bf16", "f16") and BYTES[value.dtype] > 2 and value.dtype != "f32":
        return _narrowed(f, value, dtype)
    name, wide = value.name, vector(HELD[dtype], value.lanes)
    if not is_float(value.dtype):
        how = "uitofp" if is_unsigned(value.dtype) else "sitofp"
        name = f.op(f"{how} {value.type} {name} to {wide}")
    elif HELD[value.dtype] != HELD[dtype]:
        how = "fpext" if dtype == "f64" else "fptrunc"
        name = f.op(f"{how} {value.type} {name} to {wide}")
    return rounded(f, Value(name, dtype, value.lanes))


def _narrowed(f: Function, value: Value, dtype: str) -> Value:
    """bf16 or f16 of what a float cannot hold, rounded once: an inexact float becomes odd first."""
    if BYTES[value.dtype] == 8 and not is_float(value.dtype):
        value = _sticky(f, value)
    lanes, mask = value.lanes, vector("i1", value.lanes)
    double, float_ = vector("double", lanes), vector("float", lanes)
    exact = convert(f, value, "f64").name
    near = f.op(f"fptrunc {double} {exact} to {float_}")
    back = f.op(f"fpext {float_} {near} to {double}")
    size, back_size = (
        f.intrinsic(f"llvm.fabs.{suffix('double', lanes)}", double, (double, x))
        for x in (exact, back)
    )
    wide = vector("i32", lanes)
    bits = f.op(f"bitcast {float_} {near} to {wide}")
    even = f.op(f"xor {wide} {bits}, {_integer(-1, 'i32', lanes)}")
    even = f.op(f"trunc {wide} {even} to {mask}")
    for how, step in (("olt", 1), ("ogt", -1)):
        lost = f.op(f"fcmp {how} {double} {back_size}, {size}")
        lost = f.op(f"and {mask} {lost}, {even}")
        moved = f.op(f"add {wide} {bits}, {_integer(step, 'i32', lanes)}")
        bits = f.op(f"select {mask} {lost}, {wide} {moved}, {wide} {bits}")
    return rounded(f, Value(f.op(f"bitcast {wide} {bits} to {float_}"), dtype, lanes))


def _sticky(f: Function, value: Value) -> Value:
    """A large integer of 64 bits with its last 11 joined into one, so that a double holds it."""
    lanes, wide, mask = value.lanes, value.type, vector("i1", value.lanes)
    low = f.op(f"and {wide} {value.name}, {_integer(2047, 'i64', lanes)}")
    some = f.op(f"icmp ne {wide} {low}, {literal(0, 'i64', lanes).name}")
    bit = f.op(f"select {mask} {some}, {wide} {_integer(1024, 'i64', lanes)}, {wide} {low}")
    high = f.op(f"and {wide} {value.name}, {_integer(-2048, 'i64', lanes)}")
    joined = f.op(f"or {wide} {high}, {bit}")
    size = magnitude(f, value)
    large = f.op(f"icmp ugt {wide} {size.name}, {_integer(1 << 53, 'i64', lanes)}")
    chosen = f.op(f"select {mask} {large}, {wide} {joined}, {wide} {value.name}")
    return Value(chosen, value.dtype, lanes)


def magnitude(f: Function, value: Value) -> Value:
    """The absolute value of an integer."""
    if is_unsigned(value.dtype):
        return value
    zero, kind = literal(0, value.dtype, value.lanes), suffix(HELD[value.dtype], value.lanes)
    negative = f.op(f"sub {value.type} {zero.name}, {value.name}")
    operands = (value.type, value.name), (value.type, negative)
    name = f.intrinsic(f"llvm.smax.{kind}", value.type, *operands)
    return Value(name, value.dtype, value.lanes)


def _resize(f: Function, value: Value, element: str) -> str:
    bits, wanted = int(HELD[value.dtype][1:]), int(element[1:])
    if bits == wanted:
        return value.name
    how = "trunc" if wanted < bits else ("zext" if is_unsigned(value.dtype) else "sext")
    return f.op(f"{how} {value.type} {value.name} to {vector(element, value.lanes)}")


def rounded(f: Function, value: Value) -> Value:
    """A float rounded to bf16 or f16 (nearest, ties to even), still held as a float."""
    lanes, wide = value.lanes, vector("i32", value.lanes)
    if value.dtype == "f16":
        return Value(_extended(f, _halved(f, value.name, lanes), lanes), "f16", lanes)
    if value.dtype != "bf16":
        return value
    bits = f.op(f"bitcast {value.type} {value.name} to {wide}")
    odd = f.op(f"lshr {wide} {bits}, {_integer(16, 'i32', lanes)}")
    odd = f.op(f"and {wide} {odd}, {_integer(1, 'i32', lanes)}")
    up = f.op(f"add {wide} {bits}, {_integer(0x7FFF, 'i32', lanes)}")
    up = f.op(f"add {wide} {up}, {odd}")
    high = f.op(f"and {wide} {up}, {_integer(-65536, 'i32', lanes)}")
    finite = f.op(f"bitcast {wide} {high} to {value.type}")
    nan = f.op(f"fcmp uno {value.type} {value.name}, {value.name}")
    quiet = literal(float("nan"), "f32", lanes).name
    chosen = f.op(
        f"select {vector('i1', lanes)} {nan}, {value.type} {quiet}, {value.type} {finite}"
    )
    return Value(chosen, "bf16", lanes)


def compare(f: Function, direction: str, a: Value, b: Value) -> Value:
    if is_float(a.dtype):
        how = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}[
            direction
        ]
        return Value(f.op(f"fcmp {how} {a.type} {a.name}, {b.name}"), "i1", a.lanes)
    sign = "" if direction in ("EQ", "NE") else ("u" if is_unsigned(a.dtype) else "s")
    return Value(f.op(f"icmp {sign}{direction.lower()} {a.type} {a.name}, {b.name}"), "i1", a.lanes)

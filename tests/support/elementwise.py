"""Kernels that apply one operation to arrays, for tests of values and functions."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.values import STORED, Value, from_memory, to_memory, vector
from hlotune.codegen.runtime.loader import Library
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.ir_kernels import target

_FEATURES = {
    "x86-64": TARGETS["x86-64"].features,
    "x86-64-v3": TARGETS["x86-64-v3"].features,
    "x86-64-v4": tuple(x for x in TARGETS["znver4"].features if x != "avx512bf16"),
}


def level(isa: str) -> CpuTarget:
    """A level of x86-64 with the extensions it stands for: what is not named is off."""
    return target(isa, _FEATURES[isa])


def runs_here(isa: str) -> bool:
    """Whether this processor has all that code for such a level may use."""
    return set(_FEATURES[isa]) <= set(host_target().features)


NUMPY: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "i1": np.dtype(np.bool_),
    **{f"i{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    **{f"ui{8 * n}": np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its name, the types of its operands, the type of its result."""

    op: str
    args: tuple[str, ...]
    result: str

    @property
    def symbol(self) -> str:
        return "_".join((self.op, *self.args, self.result))


class Elementwise:
    """A library of operations for one instruction set and one number of lanes."""

    def __init__(self, operations: Sequence[Operation], isa: str, lanes: int) -> None:
        module = Module(features=level(isa).features)
        for operation in operations:
            _write(module, operation, lanes)
        self.lanes = lanes
        self.text = str(module)
        machine_code = compile_object(self.text, level(isa))
        self.library = Library(machine_code, [o.symbol for o in operations], f"{isa}-{lanes}")

    def __call__(self, operation: Operation, *args: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Results for arrays of one length, filled up to whole vectors with what ends them."""
        n = len(args[0])
        whole = -(-n // self.lanes) * self.lanes
        padded = [
            np.ascontiguousarray(np.pad(a, (0, whole - n), mode="edge").astype(NUMPY[d]))
            for a, d in zip(args, operation.args, strict=True)
        ]
        out = np.empty(whole, NUMPY[operation.result])
        pointers = [a.ctypes.data for a in (*padded, out)]
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)
        call(self.library.address(operation.symbol))(*pointers, whole)
        return out[:n]


def _write(module: Module, operation: Operation, lanes: int) -> None:
    pointers = [f"%p{k}" for k in range(len(operation.args) + 1)]
    header = f"define void @{operation.symbol}({', '.join(f'ptr {p}' for p in pointers)}, i64 %n)"
    f = Function(module, header)

    def body(i: Affine) -> None:
        args = []
        for p, dtype in zip(pointers, operation.args, strict=False):
            at = f.op(f"getelementptr i8, ptr {p}, i64 {f.integer(i * BYTES[dtype])}")
            memory = f.op(f"load {vector(STORED[dtype], lanes)}, ptr {at}, align {BYTES[dtype]}")
            args.append(from_memory(f, memory, dtype, lanes))
        _store(f, apply(f, operation.op, tuple(args), operation.result), pointers[-1], i)

    f.loop("0", "%n", lanes, (0, 1 << 40), body, nonempty=False)
    f.finish()


def _store(f: Function, value: Value, pointer: str, i: Affine) -> None:
    size = BYTES[value.dtype]
    at = f.op(f"getelementptr i8, ptr {pointer}, i64 {f.integer(i * size)}")
    memory = vector(STORED[value.dtype], value.lanes)
    f.emit(f"store {memory} {to_memory(f, value)}, ptr {at}, align {size}")

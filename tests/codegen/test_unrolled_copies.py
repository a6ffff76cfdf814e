"""Statements written once for their copies: the same text, whatever was kept from others."""

import numpy as np
import pytest

from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.values import Value
from hlotune.codegen.llvm.points import Lane
from hlotune.codegen.llvm.templates import Block, Draft, Once, Put, Read
from hlotune.codegen.llvm.unrolled_copies import Copy, copies
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import Loop, StageNest
from tests.support.computes import Case, conv, gemm

AVX512 = TARGETS["znver4"]


@pytest.mark.parametrize("case", (conv(12, 12, 32, 32), gemm(37, 45, 29)), ids=repr)
def test_a_text_is_the_same_whatever_was_written_before(case: Case) -> None:
    space = space_of(case.compute, AVX512)
    for config in space.sample(12, np.random.default_rng(3)):
        schedule = space.schedule(config)
        fresh = replay(compute_of(graph_of(case.kernel)), schedule, AVX512)
        assert emit(replay(case.compute, schedule, AVX512)).text == emit(fresh).text


def test_a_draft_filled_in_is_what_was_written() -> None:
    draft = Draft()
    loaded = draft.read(0)
    wide = draft.once(f"fpext float {loaded} to double")
    total = draft.op(f"fadd double {wide}, {wide}")
    total = draft.intrinsic("llvm.fabs.f64", "double", ("double", total))
    draft.put(0, Value(total, "f64", 1))
    read, once, block, put = draft.steps
    assert isinstance(read, Read)
    assert isinstance(once, Once)
    assert isinstance(block, Block)
    assert isinstance(put, Put)
    module = Module()
    f, names = Function(module, "define void @f()"), ["%x"]
    names.append(f.once(once.line.filled(names)))
    block.write(f, names)
    f.finish()
    assert put.value_of(names) == Value("%v3", "f64", 1)
    assert str(module) == (
        "declare double @llvm.fabs.f64(double)\n\n"
        "define void @f() {\nentry:\n"
        "  %v1 = fpext float %x to double\n"
        "  %v2 = fadd double %v1, %v1\n"
        "  %v3 = call double @llvm.fabs.f64(double %v2)\n"
        "  ret void\n}\n"
    )


def test_copies_are_cut_at_the_end_and_fenced_by_steps_of_a_reduction() -> None:
    i, r = Affine.axis("i"), Affine.axis("r")
    stage = Stage(
        "s", (Axis("i", 9),), (Axis("r", 2),), (Store("y", (i,)),), (Load("x", (i, r), "f32"),),
        SUM,
    )  # fmt: skip
    loops = (
        Loop("r", "r", 1, "unroll"), Loop("i.0", "i", 4, "unroll"), Loop("i.1", "i", 1, "vectorize")
    )  # fmt: skip
    found = copies(StageNest(stage, loops), 0, {"r": 2, "i": 6})
    assert found == tuple(
        Copy({"r": step, "i": start}, Lane("i", 4, lanes), fences)
        for step in (0, 1)
        for start, lanes, fences in ((0, 4, 1), (4, 2, 0))
    )

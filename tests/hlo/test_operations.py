"""The table of elementwise operations: each row is all that cutting, code and oracle need."""

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.values import literal
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.operations import KERNELS_ELEMENTWISE, ON_SCALARS
from hlotune.hlo.oracle import elementwise
from hlotune.hlo.oracle.bounded import exact
from hlotune.hlo.oracle.floats import FLOATS, RULES
from hlotune.hlo.oracle.integers import INTEGERS, LOGIC
from hlotune.hlo.oracle.movement import MOVEMENT
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.hlo.to_compute.expressions import ELEMENTWISE
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.operations import OPERATIONS, Operation, row_of
from hlotune.schedules.spaces.cpu_contraction.space import space_of

KERNELS = [row for row in OPERATIONS.values() if row.kernels]
FORMS = {"compare", "convert", "select", "clamp", "bitcast_convert"}
"""Operations with attributes, other types or other shapes of operands, which have tests apart."""
PLAIN = [row for row in KERNELS if row.name not in FORMS]
DTYPES = {"f": ("f32", "f64", "bf16", "f16"), "i": ("i32", "i8", "ui8", "i64"), "b": ("i1",)}


def kind_of(dtype: str) -> str:
    return "f" if is_float(dtype) else "b" if dtype == "i1" else "i"


def text_of(row: Operation, dtype: str) -> str:
    """A product, and the operation on it and on an argument beside it where it takes two."""
    left, right, out = (f"tensor<{shape}x{dtype}>" for shape in ("8x16", "16x24", "8x24"))
    operands = ", ".join(("%0", "%b")[: row.operands])
    types = ", ".join([out] * row.operands)
    result = "tensor<8x24xi1>" if row.name == "is_finite" else out
    return f"""module {{
  func.func public @main(%x: {left}, %w: {right}, %b: {out}) -> {result} {{
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({left}, {right}) -> {out}
    %1 = "{row.full_names[0]}"({operands}) : ({types}) -> {result}
    return %1 : {result}
  }}
}}
"""


@pytest.mark.parametrize(
    ("row", "dtype"),
    [(r, t) for r in PLAIN for t in ("f32", "i32") if kind_of(t) in r.types],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_an_operation_of_the_table_goes_from_a_program_to_verified_code(
    row: Operation, dtype: str, tmp_path: Path
) -> None:
    (tmp_path / "program.mlir").write_text(text_of(row, dtype))
    program = load(tmp_path / "program.mlir")
    site = sites(program)[0]
    assert site.results == program.graph.results, "the operation is cut off its product"
    compute = compute_of(graph_of(site.kernel))
    space = space_of(compute, host_target())
    built = build(compute, space.schedule(space.heuristic()), host_target())
    verdict = verify(site.kernel, built)
    assert isinstance(verdict, Verdict), verdict


@pytest.mark.parametrize("row", [r for r in PLAIN if not r.definition], ids=lambda row: row.name)
def test_code_is_there_for_the_types_of_a_row_and_for_no_others(row: Operation) -> None:
    for kind, dtype in ((k, t) for k, types in DTYPES.items() for t in types):
        f = Function(Module(), "define void @f()")
        args = tuple(literal(1, dtype, 4) for _ in range(row.operands))
        if kind in row.types:
            assert apply(f, row.name, args, dtype).lanes == 4
        elif kind != "b":  # of i1 StableHLO itself refuses what has no meaning
            with pytest.raises(UnsupportedKernel, match=f"no code for {row.name} on {dtype}"):
                apply(f, row.name, args, dtype)


@pytest.mark.parametrize("row", OPERATIONS.values(), ids=lambda row: row.name)
def test_the_oracle_knows_what_a_row_claims(row: Operation) -> None:
    if row.name in elementwise.NAMED or MOVEMENT.keys() & set(row.full_names):
        return
    assert ("f" in row.types) == (row.name in FLOATS)
    assert ("i" in row.types or "b" in row.types) == (row.name in INTEGERS)


def test_rules_of_the_oracles_own_are_of_rows_without_one() -> None:
    assert all(OPERATIONS[name].error is None for name in RULES)
    assert LOGIC.keys() == INTEGERS.keys()


def test_every_reader_of_the_table_names_operations_that_it_has() -> None:
    assert {name.partition(".")[2] for name in KERNELS_ELEMENTWISE} == ELEMENTWISE
    assert ON_SCALARS - {"stablehlo.constant"} == {
        name for row in OPERATIONS.values() for name in row.full_names
    }
    assert all(name.partition(".")[0] in ("stablehlo", "chlo") for name in ON_SCALARS)


def value_at(name: str, *operands: float) -> float:
    """What the oracle's rule makes of numbers."""
    return float(FLOATS[name](*(exact(np.array(x, np.float64), "f64") for x in operands)).value)


def test_facts_of_a_row_hold_of_its_function() -> None:
    """At zeros, at infinities, and at numbers above zero."""
    for row in OPERATIONS.values():
        if row.name not in FLOATS or row.name in FORMS:
            continue
        value = partial(value_at, row.name)
        with np.errstate(all="ignore"):
            if row.zero_at_zero:
                assert value(0.0) == 0
            if row.bounded:
                assert all(np.isfinite(value(x)) for x in (-700.0, -1.0, 0.0, 1.0, 700.0))
            if row.keeps_positive:
                operands = product((0.25, 1.0, 8.0), repeat=row.operands)
                assert all(value(*x) > 0 for x in operands), row.name
            if row.fold:
                pairs = product((-2.0, 0.5, 3.0), repeat=row.operands)
                assert all(value(*x) == row.fold(*x) for x in pairs), row.name


def test_comparisons_share_a_row_and_what_is_unknown_has_an_empty_one() -> None:
    assert row_of("compare_LT") is OPERATIONS["compare"]
    assert row_of("dot").types == ""

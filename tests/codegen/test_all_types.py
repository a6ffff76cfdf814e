"""Every elementwise operation on every type that it is defined for, from a program to code.

All operations of a type are results of one program, which is one kernel: one compilation serves
them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.operations import OPERATIONS
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
TYPES = (
    "f64", "f32", "f16", "bf16", "i64", "ui64", "i32", "ui32", "i16", "ui16", "i8", "ui8", "i1",
)  # fmt: skip
SHAPE = "7x19"
FORMS = ("compare", "convert", "select", "clamp", "bitcast_convert")
SIGNED = ("abs", "sign")
"""Operations that StableHLO refuses of unsigned integers."""
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def kind_of(dtype: str) -> str:
    return "f" if is_float(dtype) else "b" if dtype == "i1" else "i"


def lines(dtype: str) -> list[tuple[str, str]]:
    """Operations on %x and %y of a type, each with the type of its result."""
    whole, truth = f"tensor<{SHAPE}x{dtype}>", f"tensor<{SHAPE}xi1>"
    found = []
    for row in OPERATIONS.values():
        refused = row.name in SIGNED and dtype.startswith("ui")
        if row.kernels and not refused and row.name not in FORMS and kind_of(dtype) in row.types:
            result = truth if row.name == "is_finite" else whole
            operands = ", ".join(("%x", "%y")[: row.operands])
            types = ", ".join([whole] * row.operands)
            text = f'"{row.full_names[0]}"({operands}) : ({types}) -> {result}'
            found.append((text, result))
    for direction in DIRECTIONS:
        text = f"stablehlo.compare {direction}, %x, %y : ({whole}, {whole}) -> {truth}"
        found.append((text, truth))
    for target in TYPES:
        result = f"tensor<{SHAPE}x{target}>"
        found.append((f"stablehlo.convert %x : ({whole}) -> {result}", result))
    if dtype == "i1":
        return found
    found.append((f"stablehlo.select %p, %x, %y : {truth}, {whole}", whole))
    found.append((f"stablehlo.clamp %x, %y, %x : {whole}", whole))
    return found


def program_of(dtype: str, folder: Path) -> Program:
    whole, truth = f"tensor<{SHAPE}x{dtype}>", f"tensor<{SHAPE}xi1>"
    written = lines(dtype)
    body = "\n".join(f"    %{k} = {text}" for k, (text, _) in enumerate(written))
    names = ", ".join(f"%{k}" for k in range(len(written)))
    types = ", ".join(result for _, result in written)
    given = f"%x: {whole}, %y: {whole}, %p: {truth}"
    text = f"""module {{
  func.func public @main({given}) -> ({types}) {{
{body}
    return {names} : {types}
  }}
}}
"""
    (folder / "program.mlir").write_text(text)
    return load(folder / "program.mlir")


def values_of(dtype: str, seed: int) -> Array:
    """Ordinary numbers and the edges of the type, in another order for each seed."""
    rng, kind, count = np.random.default_rng(seed), numpy_dtype(dtype), 7 * 19
    if dtype == "i1":
        return rng.random((7, 19)) < 0.5
    if not is_float(dtype):
        found = rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
        found[:60] = rng.integers(0, 70, 60).astype(kind)
        return rng.permutation(found).reshape(7, 19)
    with np.errstate(all="ignore"):
        edges = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2.5, np.inf, -np.inf, np.nan], kind)
    ordinary = (3 * rng.standard_normal(count - edges.size)).astype(kind)
    return rng.permutation(np.concatenate([ordinary, edges])).reshape(7, 19)


@pytest.mark.parametrize("dtype", TYPES)
def test_all_operations_of_a_type_are_computed_as_the_oracle_says(
    dtype: str, tmp_path: Path
) -> None:
    program = program_of(dtype, tmp_path)
    given = [values_of(dtype, 1), values_of(dtype, 2), values_of("i1", 3)]
    site = sites(program)[0]
    assert set(site.results) >= set(program.graph.results) - set(program.graph.arguments)
    hold(program, site, given)


def hold(program: Program, site: Site, given: list[Array]) -> None:
    """Holds all results of a kernel against the oracle."""
    graph = graph_of(site.kernel)
    values = [given[program.graph.arguments.index(v)] for v in site.arguments]
    got = called(compute_of(graph), (), values)
    oracle = Oracle(graph, values)
    for k, (kind, result) in enumerate(zip(graph.result_types, got, strict=True)):
        reference = oracle.region(k, tuple((0, n) for n in kind.shape))
        shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
        wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
        name = program.graph.ops[producer(program, site.results[k])].name
        assert wrong is None, f"{name}: {wrong}"


def producer(program: Program, value: int) -> int:
    return next(i for i, op in enumerate(program.graph.ops) if value in op.results)

"""Each monoid as it is compiled: any schedule of a reduction gives what its definition says."""

from dataclasses import replace

import numpy as np
import pytest

from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.expr import Given
from hlotune.schedules.ir.monoids import AND, MAX, MIN, MONOIDS, OR, PROD, SUM, Monoid
from hlotune.schedules.ir.nest import initial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    ComputeAt,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
    VectorizeReduction,
)
from tests.support.interpreter import interpret
from tests.support.reductions import (
    Array,
    Kind,
    argmax,
    argmin,
    called,
    moments,
    of_rows,
    plain,
    softmax,
)

INF, NAN = np.inf, np.nan
ROWS, COLUMNS = 19, 11
KINDS = (
    *(
        plain(m, t)
        for m in (SUM, PROD, MAX, MIN)
        for t in ("f32", "f64", "i32", "i8", "ui8", "i64")
    ),
    *(plain(m, t) for m in (MAX, MIN, SUM, PROD, AND, OR) for t in ("i1",)),
    *(plain(m, t) for m in (AND, OR) for t in ("i32", "ui8")),
    *(argmax(t) for t in ("f32", "f64", "i32", "i8", "ui8")),
    argmax("f32", "i64"),
    *(argmin(t) for t in ("f32", "i32", "ui8")),
    *(f(t) for f in (moments, softmax) for t in ("f32", "f64")),
)
SCHEDULES: dict[str, tuple[Step, ...]] = {
    "in memory": (),
    "reductions outermost": (Reorder("all", ("r", "i")),),
    "vectors of rows in memory": (
        Split("all", "i", (8,)), Reorder("all", ("r", "i.0", "i.1")), Vectorize("all", "i.1"),
    ),
    "in registers": (Accumulate("all", "i"),),
    "a tile of vectors in registers": (
        Split("all", "i", (2, 4)), Reorder("all", ("i.0", "r", "i.1", "i.2")),
        Vectorize("all", "i.2"), Unroll("all", "i.1"), Accumulate("all", "i.0"),
    ),
    "in registers a piece at a time": (
        Split("all", "r", (4,)), Reorder("all", ("r.0", "i", "r.1")), Accumulate("all", "i"),
    ),
    "written out": (Unroll("all", "r"), Accumulate("all", "i")),
    "in tasks": (Parallel("all", "i"), Accumulate("all", "i")),
    "added up of pieces": (
        Split("all", "r", (4,)), Reorder("all", ("r.0", "i", "r.1")), Accumulate("all", "i"),
        AddUp("all"),
    ),
    "vectors added up of pieces": (
        Split("all", "r", (4,)), Split("all", "i", (8,)),
        Reorder("all", ("i.0", "r.0", "r.1", "i.1")), Vectorize("all", "i.1"),
        Accumulate("all", "r.0"), AddUp("all"),
    ),
    "in lanes": (
        Split("all", "r", (8,)), Accumulate("all", "i"), VectorizeReduction("all", "r.1"),
    ),
    "whole rows in lanes": (VectorizeReduction("all", "r"), Accumulate("all", "i")),
    "a tile of rows in lanes": (
        Split("all", "i", (4,)), Split("all", "r", (2, 4)),
        Reorder("all", ("i.0", "r.0", "i.1", "r.1", "r.2")), VectorizeReduction("all", "r.2"),
        Unroll("all", "r.1"), Unroll("all", "i.1"), Accumulate("all", "i.0"),
    ),
    "in lanes, a piece at a time": (
        Split("all", "r", (2, 2)), Reorder("all", ("r.0", "i", "r.1", "r.2")),
        Accumulate("all", "i"), VectorizeReduction("all", "r.2"), AddUp("all"),
    ),
}  # fmt: skip


def drawn(kind: Kind, rows: int = ROWS, columns: int = COLUMNS, seed: int = 0) -> list[Array]:
    """Rows of small numbers with many ties, and the numbers of the columns."""
    rng, dtype = np.random.default_rng(seed), kind.dtypes[0]
    low = 0 if dtype.startswith("u") or dtype == "i1" else -2
    values: Array = rng.integers(low, 2 if dtype == "i1" else 4, (rows, columns))
    if is_float(dtype) and kind.monoid.name in ("moments", "softmax"):
        values = values + rng.standard_normal((rows, columns))
    numbers = np.arange(columns).astype(numpy_dtype(kind.dtypes[-1]))
    return [values.astype(numpy_dtype(dtype)), numbers]


def by_numpy(kind: Kind, x: Array) -> list[Array]:
    """What the definition says, of rows that are not empty."""
    wide = x.astype(np.float64) if is_float(kind.dtypes[0]) else x
    name = kind.monoid.name
    if name in ("argmax", "argmin"):
        at = x.argmax(axis=1) if name == "argmax" else x.argmin(axis=1)
        return [np.take_along_axis(x, at[:, None], 1)[:, 0], at]
    if name == "moments":
        mean = wide.mean(axis=1)
        return [np.full(len(x), x.shape[1]), mean, np.square(wide - mean[:, None]).sum(axis=1)]
    if name == "softmax":
        top = wide.max(axis=1)
        return [top, np.exp(wide - top[:, None]).sum(axis=1)]
    functions: dict[str, np.ufunc] = {
        "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
        "and": np.bitwise_and, "or": np.bitwise_or,
    }  # fmt: skip
    if kind.dtypes[0] == "i1":
        functions |= {"sum": np.logical_or, "prod": np.logical_and}
    return [functions[name].reduce(wide, axis=1, dtype=wide.dtype)]


def agree(found: list[Array], wanted: list[Array], kind: Kind) -> None:
    for a, b in zip(found, wanted, strict=True):
        if kind.monoid.name in ("moments", "softmax"):
            np.testing.assert_allclose(a, b, rtol=1e-12 if "f64" in kind.dtypes else 4e-6)
        else:
            np.testing.assert_array_equal(a, b.astype(a.dtype))


def test_every_monoid_is_tested() -> None:
    assert {k.monoid.name for k in KINDS} == MONOIDS.keys()


OFTEN = ("f32", "i32")
"""Types in which every monoid meets every schedule; of the others each meets a third of them, and
all where tests may be slow."""
OF_TYPE = {k: sum(x.dtypes[0] == k.dtypes[0] for x in KINDS[:n]) for n, k in enumerate(KINDS)}
"""How many kinds of its type stand before each: they take turns with the schedules."""


def is_fast(kind: Kind, number: int) -> bool:
    """Whether a kind meets the schedule of a number wherever tests run."""
    return kind.dtypes[0] in OFTEN or (OF_TYPE[kind] + number) % 3 == 0


PAIRS = [
    pytest.param(
        kind, name, id=f"{kind}-{name}", marks=() if is_fast(kind, n) else pytest.mark.slow
    )
    for kind in KINDS
    for n, name in enumerate(SCHEDULES)
]


@pytest.mark.parametrize("dtype", sorted({k.dtypes[0] for k in KINDS}))
def test_every_type_meets_every_schedule_wherever_tests_run(dtype: str) -> None:
    kinds = [k for k in KINDS if k.dtypes[0] == dtype]
    assert all(any(is_fast(k, n) for k in kinds) for n in range(len(SCHEDULES)))


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_compiled_reductions_are_those_of_their_definition(kind: Kind, name: str) -> None:
    compute, values = of_rows(kind, ROWS, COLUMNS), drawn(kind)
    found = called(compute, SCHEDULES[name], values)
    agree(found, by_numpy(kind, values[0]), kind)
    agree(interpret(compute, values), by_numpy(kind, values[0]), kind)


@pytest.mark.parametrize("name", ["in memory", "vectors of rows in memory", "in tasks"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_reduction_of_nothing_is_its_identities(kind: Kind, name: str) -> None:
    compute, values = of_rows(kind, ROWS, 0), drawn(kind, columns=0)
    steps = [s for s in SCHEDULES[name] if not isinstance(s, Reorder | Accumulate)]
    found, wanted = called(compute, steps, values), kind.monoid.identities(kind.dtypes)
    for a, b, c in zip(found, interpret(compute, values), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, np.full(ROWS, c.value, a.dtype))


SPECIALS: Array = np.array([
    [1, NAN, 2, NAN, 3], [INF, 1, INF, 2, -INF], [-INF] * 5, [INF, NAN, INF, 1, 2],
    [-INF, 1, 2, 2, 1], [NAN] * 5, [0.0, -0.0, 0.0, -0.0, 0.0], [1, 1, 1, 1, 1],
])  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", [k for k in KINDS if is_float(k.dtypes[0])], ids=str)
def test_infinities_and_numbers_that_are_none_go_where_the_definition_says(
    kind: Kind, name: str
) -> None:
    rows, columns = SPECIALS.shape
    compute = of_rows(kind, rows, columns)
    values = [SPECIALS.astype(numpy_dtype(kind.dtypes[0])), drawn(kind, columns=columns)[1]]
    found = called(compute, SCHEDULES[name], values)
    with np.errstate(invalid="ignore"):
        agree(found, interpret(compute, values), kind)
        wanted = by_numpy(kind, values[0])
        if kind.monoid.name == "softmax":  # largest values count as one each, infinite ones too
            largest = (values[0] == wanted[0][:, None]).sum(axis=1)
            wanted[1] = np.where(np.isinf(wanted[0]), largest, wanted[1])
        agree(found, wanted, kind)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("dtype", ["f32", "i32", "ui8"])
def test_of_equal_values_the_lowest_index_is_found(dtype: str, name: str) -> None:
    kind, rng = argmax(dtype), np.random.default_rng(1)
    values = [rng.integers(0, 2, (ROWS, COLUMNS)).astype(numpy_dtype(dtype)), drawn(kind)[1]]
    _, found = called(of_rows(kind, ROWS, COLUMNS), SCHEDULES[name], values)
    np.testing.assert_array_equal(found, values[0].argmax(axis=1))


def test_moments_of_numbers_far_from_zero_keep_their_digits() -> None:
    """A mean of a thousand deviations, of which one sum of squares would lose six digits."""
    kind, rng = moments("f32"), np.random.default_rng(2)
    values = [
        (rng.standard_normal((ROWS, 4096)) + 1000).astype(np.float32),
        np.zeros(4096, np.float32),
    ]
    _, mean, squares = called(of_rows(kind, ROWS, 4096), SCHEDULES["in registers"], values)
    _, wanted, wanted_squares = by_numpy(kind, values[0])
    np.testing.assert_allclose(mean, wanted, rtol=1e-5)
    np.testing.assert_allclose(squares, wanted_squares, rtol=1e-3)


def test_what_a_monoid_finishes_is_read_of_all_its_parts() -> None:
    compute, values = of_rows(moments("f32"), ROWS, COLUMNS, finished=True), drawn(moments("f32"))
    mean, variance = called(compute, SCHEDULES["in registers"], values)
    np.testing.assert_allclose(mean, values[0].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(variance, values[0].var(axis=1), rtol=1e-5)


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=str)
def test_operations_of_a_merge_are_counted(monoid: Monoid) -> None:
    stage = of_rows(next(k for k in KINDS if k.monoid is monoid), ROWS, COLUMNS).stages[0]
    counts = {"argmax": 12, "argmin": 12, "moments": 15, "softmax": 12}
    assert stage.flops == counts.get(monoid.name, 1) * ROWS * COLUMNS


def test_a_monoid_and_a_compute_say_what_they_are() -> None:
    lines = str(of_rows(argmax("f32"), 3, 5)).splitlines()
    assert lines[-1] == "all (i<3, r<5): y1[i] = argmax over r a1[r]"
    old, new = (Given(0, "f32"),), (Given(1, "f32"),)
    assert list(map(str, MAX.merge(old, new))) == ["maximum($0, $1)"]


def test_lanes_are_merged_where_a_consumer_reads_registers() -> None:
    steps = (
        ComputeAt("all", "out", "i"), Split("all", "r", (4,)), Reorder("all", ("r.0", "i", "r.1")),
        VectorizeReduction("all", "r.1"), Unroll("all", "i"), Accumulate("all", ""),
    )  # fmt: skip
    compute, values = of_rows(moments("f32"), ROWS, COLUMNS, finished=True), drawn(moments("f32"))
    mean, variance = called(compute, steps, values)
    np.testing.assert_allclose(mean, values[0].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(variance, values[0].var(axis=1), rtol=1e-5)


REFUSED = {
    "lanes that are results": ((VectorizeReduction("all", "i"),), "i is not innermost"),
    "results in memory": (
        (VectorizeReduction("all", "r"),),
        "no loop of all holds its results in registers around the lanes of r: accumulate there",
    ),
    "no reduction": (
        (Reorder("all", ("r", "i")), VectorizeReduction("all", "i")), "i is no reduction",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_lanes_that_a_reduction_cannot_have_are_refused(name: str) -> None:
    steps, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=f"^vectorize_reduction: {message}$"):
        replay(of_rows(argmax("f32"), 3, 5), Schedule("direct", steps), TARGETS["znver4"])


def test_a_loop_that_takes_steps_has_no_lanes() -> None:
    made = initial(of_rows(argmax("f32"), 3, 16), TARGETS["znver4"])
    split = Split("all", "r", (8,)).apply(made)
    s = split.stage("all")
    outer = split.put(replace(s, loops=s.loops[:-1]))  # no step leaves such a loop innermost
    with pytest.raises(ScheduleError, match=r"r\.0 does not walk element by element"):
        VectorizeReduction("all", "r.0").apply(outer)


def test_schedules_with_lanes_of_a_reduction_go_through_json() -> None:
    schedule = Schedule("direct", (VectorizeReduction("all", "r"), Accumulate("all", "i")))
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert '"VectorizeReduction"' in schedule.to_json()

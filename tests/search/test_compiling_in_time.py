"""What XLA takes to compile a tuned program is put by, which is less than the default takes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.deploy.bench import Prepared
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import Graph
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.comparing import ANY, AS_DEFAULT, Expected, Place, Within
from hlotune.search.finals.whole_program import LEAST_LEFT, WholeProgram, work_of
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Whole
from tests.support.costly_device import SLOW, Device, products, several
from tests.support.sessions import WHOLE, FakeProgram, run

COMPILE_S, CALL_S = 8.0, 0.01
OPERATIONS = 16


@dataclass
class Compiled(FakeProgram):
    """A program that XLA compiles for seconds; of a tuned one it compiles what is left by the
    kernels that won, each of which takes `each` operations.
    """

    each: int = 0
    won: Callable[[], int] = lambda: 0

    def prepare(self, oracle_limit_s: float) -> None:
        super().prepare(oracle_limit_s)
        self._take(COMPILE_S + CALL_S)

    def due_s(
        self, timing_s: float, expected: Expected = AS_DEFAULT, within: Within = ANY
    ) -> float:
        return whole().due_s(timing_s, expected, within) if self.oracle_limits_s else 0.0

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        left = max(LEAST_LEFT, 1 - self.each * self.won() / OPERATIONS)
        self._take(left * COMPILE_S + 11 * CALL_S + min(limit_s, 60 * 2 * CALL_S))
        return WHOLE


def whole() -> WholeProgram:
    nothing: Any = None
    found = WholeProgram(nothing, nothing, "standard", nothing, "model")
    found._work = frozenset(((), n) for n in range(OPERATIONS))
    found._ready = Prepared(
        program=nothing, default=nothing, inputs=nothing, judges=(nothing,),
        compile_s=COMPILE_S + CALL_S, call_s=CALL_S,
    )  # fmt: skip
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def used_s(
    database: Database, each: int, budget_s: float, kernels: int = 4
) -> tuple[float, TuneResult]:
    """The seconds that a run takes whose kernels take so many operations each."""
    tasks = several(kernels)
    device = Device(tasks, SLOW)
    places = products(*tasks)
    for n, place in enumerate(places):
        place.ops = frozenset(range(n * each, (n + 1) * each))

    def won() -> int:
        return len(database.query("select key from finals, kernels where key = kernel"))

    program = Compiled(device=device, each=each, won=won)
    result = run(
        database, tasks, device, model=Trees(), limits=Limits(seconds=budget_s), whole=program,
        places=places,
    )  # fmt: skip
    return device.now(), result


@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize("budget_s", [60.0, 90.0])
def test_a_short_run_is_used_to_its_end_whatever_share_of_the_program_is_left_to_xla(
    budget_s: float, each: int, database: Database
) -> None:
    passed_s, result = used_s(database, each, budget_s)
    assert len(result.won) == 4
    assert 0.9 * budget_s < passed_s <= budget_s
    assert not result.overrun


def replacing(count: int) -> Expected:
    return Expected(replaced=frozenset(((), n) for n in range(count)))


def test_operations_that_only_move_elements_take_no_time_to_compile() -> None:
    def model(x: jax.Array) -> jax.Array:
        wide = jnp.broadcast_to(x[None, :4], (3, 4)).reshape(12)
        found: jax.Array = jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) * wide, wide)
        return found

    graph = load(model, jnp.ones(8)).graph
    names = {named(graph, place) for place in work_of(graph)}
    assert {"stablehlo.while", "stablehlo.sine", "stablehlo.multiply"} <= names
    assert names.isdisjoint({"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.slice"})


def named(graph: Graph, place: Place) -> str:
    path, op = place
    for number, region in zip(path[::2], path[1::2], strict=True):
        graph = graph.ops[number].regions[region]
    return graph.ops[op].name


def test_what_merges_elements_is_a_part_of_the_operation_that_a_kernel_replaces() -> None:
    def model(x: jax.Array) -> jax.Array:
        rows = jnp.zeros((4, 3)).at[jnp.arange(8) % 4].add(x)
        return jax.lax.sort(jnp.sum(rows, axis=0)) + jnp.argmax(x)

    graph = load(model, jnp.ones((8, 3))).graph
    found = list(work_of(graph))
    names = {named(graph, place) for place in found}
    assert {"stablehlo.reduce", "stablehlo.scatter", "stablehlo.sort"} <= names
    assert "stablehlo.iota" not in names
    assert {path for path, _ in found} == {()}


def test_a_tuned_program_is_expected_to_compile_as_long_as_the_last_one_did() -> None:
    program = whole()
    assert program.compile_s(AS_DEFAULT) == pytest.approx(COMPILE_S)
    assert program.compile_s(replacing(12)) == pytest.approx(COMPILE_S / 4)
    assert program.compile_s(replacing(99)) == pytest.approx(LEAST_LEFT * COMPILE_S)
    before, costs = program.due_s(1.0), program.form_costs(0.95)
    program._compiled_s, program._compiled_share = 0.5, 0.25
    same = replacing(12)
    assert program.due_s(1.0, same) == pytest.approx(before - COMPILE_S + 0.5)
    checking_s = program.form_costs(0.95, same).checking_s
    assert checking_s == pytest.approx(costs.checking_s - COMPILE_S + 0.5)


def test_a_form_that_leaves_more_to_xla_is_expected_to_compile_longer_than_the_last_one() -> None:
    program = whole()
    program._compiled_s, program._compiled_share = 0.24, LEAST_LEFT
    assert program.compile_s(replacing(16)) == pytest.approx(0.24)
    assert program.compile_s(replacing(8)) == pytest.approx(5 * 0.24)
    assert program.compile_s(AS_DEFAULT) == pytest.approx(COMPILE_S)
    program._compiled_s = 4.0
    assert program.compile_s(replacing(8)) == pytest.approx(COMPILE_S), "no longer than all of it"

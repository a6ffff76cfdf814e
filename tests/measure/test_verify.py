"""Verification: right kernels pass, every planted fault is found."""

import re
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.graph import Graph
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.cases import Case as ReferenceCase
from hlotune.measure.verification.inputs import Domain, InputKind, domains, draw
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from tests.support.computes import Case, tiled, whole
from tests.support.tiny_dot import FAULTS, SHARED_SCRATCH, SHORT_PACKING, kernel, tiny_dot

REFERENCES = References(kernel())


def failure(verdict: Verdict | Failure) -> Failure:
    assert isinstance(verdict, Failure), verdict
    assert verdict.kind == "wrong_result"
    return verdict


def graph(arguments: str, body: str, result: str) -> Graph:
    text = f"func.func @kernel({arguments}) -> ({result}) {{\n{body}\n}}\n"
    return graph_of(Kernel(text))


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_right_kernel_passes_with_a_small_error(packed: bool, thorough: bool) -> None:
    built = tiny_dot(packed=packed)
    verdict = verify(kernel(), built, thorough=thorough, references=REFERENCES)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.numerics == "strict"
    assert 0 < verdict.error < 1 / 8


@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_found(name: str) -> None:
    verdict = verify(kernel(), tiny_dot(FAULTS[name]), references=REFERENCES)
    assert failure(verdict).message


def test_winners_with_large_constants_meet_fewer_sets_and_every_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hlotune.measure.verification.rounds.LARGE_BYTES", 0)
    drawn, references = list[tuple[str, int]](), References(kernel())

    class Counting(References):
        def case(self, kind: InputKind, seed: int = 0, outputs: int = 0) -> ReferenceCase:
            drawn.append((kind, seed))
            return references.case(kind, seed, outputs)

    right = verify(kernel(), tiny_dot(packed=True), thorough=True, references=Counting(kernel()))
    assert isinstance(right, Verdict)
    assert list(dict.fromkeys(drawn)) == [("integers", 0), ("normal", 0), ("special", 2)]
    for fault in FAULTS.values():
        found = verify(kernel(), tiny_dot(fault), thorough=True, references=references)
        assert failure(found).message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("the last column is not written", "9 of 45 unwritten"),
        ("scratch is not cleared", "unwritten scratch"),
        ("the last tap is lost", "exact bits demanded"),
        ("products are rounded to bfloat16", "at most 8 bounds of error"),
        ("the result depends on the slot", "20 of 45 elements wrong, worst at .7, 1.: expected 0"),
        ("the rounding depends on the slot", "same bits for every number of threads"),
        ("an argument is changed", "expected argument 0 to be left alone"),
        ("a constant is changed", "expected argument 1 to be left alone"),
        ("the float before the result is written", r"outside of result 0 \(180 bytes\)"),
        ("the kernel gives up", "expected status 0, got 3"),
    ],
)
def test_faults_are_called_by_name(name: str, message: str) -> None:
    found = failure(verify(kernel(), tiny_dot(FAULTS[name]), references=REFERENCES))
    assert re.search(message, found.message), found.message


def test_a_changed_packed_constant_is_found() -> None:
    built = tiny_dot(FAULTS["a constant is changed"], packed=True)
    assert "argument 1" in failure(verify(kernel(), built, references=REFERENCES)).message


def test_a_packing_that_leaves_something_out_is_found() -> None:
    built = tiny_dot(SHORT_PACKING, packed=True)
    failure(verify(kernel(), built, references=REFERENCES))


@pytest.mark.parametrize("rows", [2, 9, 400])
def test_a_race_for_scratch_is_found_by_name(rows: int) -> None:
    """Also where a loop is so short that one thread is done before the other begins."""
    raced, references = tiny_dot(SHARED_SCRATCH, rows=rows), References(kernel(rows))
    found = failure(verify(kernel(rows), raced, references=references))
    assert "written by the tasks of two threads, got" in found.message


def test_what_is_not_watched_in_a_candidate_is_watched_in_a_winner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hlotune.measure.verification.rounds.WATCHED_AT_FIRST_BYTES", 0)
    found = failure(verify(kernel(), tiny_dot(SHARED_SCRATCH), thorough=True))
    assert "written by the tasks of two threads, got" in found.message


def test_a_looser_setting_takes_a_larger_error() -> None:
    rough = tiny_dot(
        (
            "%product = fmul float %a, %b",
            "%long = fmul float %a, %b\n  %bits = bitcast float %long to i32\n"
            "  %short = and i32 %bits, -64\n  %product = bitcast i32 %short to float",
        )
    )
    failure(verify(kernel(), rough, numerics="strict", references=REFERENCES))
    verdict = verify(kernel(), rough, numerics="fast", references=REFERENCES)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.numerics in ("standard", "fast")


def test_an_object_of_another_machine_is_a_failed_build() -> None:
    built = tiny_dot()
    foreign = type(built)(b"\x7fELF" + bytes(100), 0, (), 0, 2)
    verdict = verify(kernel(), foreign, references=REFERENCES)
    assert isinstance(verdict, Failure)
    assert verdict.kind == "build"


def test_references_are_made_once() -> None:
    references = References(kernel())
    assert references.case("normal") is references.case("normal")
    assert references.case("normal") is not references.case("normal", 1)


def test_integer_inputs_make_sums_exact() -> None:
    assert REFERENCES.case("integers").is_exact
    assert not REFERENCES.case("normal").is_exact


def test_inputs_that_overflow_are_drawn_smaller() -> None:
    t = "tensor<64xf32>"
    body = f'  %0 = "stablehlo.multiply"(%arg0, %arg0) : ({t}, {t}) -> {t}\n'
    for i in range(1, 9):
        body += f'  %{i} = "stablehlo.multiply"(%{i - 1}, %{i - 1}) : ({t}, {t}) -> {t}\n'
    text = f"func.func @kernel(%arg0: {t}) -> ({t}) {{\n{body}  return %8 : {t}\n}}\n"
    case = References(Kernel(text)).case("normal")
    assert case.uncompared <= 0.01


def with_infinities(share: float) -> Kernel:
    t, lost = "tensor<64xf32>", int(64 * share)
    values = ", ".join(["0x7F800000"] * lost + ["1.0"] * (64 - lost))
    return Kernel(
        f"func.func @kernel(%arg0: {t}) -> ({t}) {{\n"
        f"  %0 = stablehlo.constant dense<[{values}]> : {t}\n"
        f"  %1 = stablehlo.add %arg0, %0 : {t}\n  return %1 : {t}\n}}\n"
    )


def test_a_kernel_that_gives_nothing_to_compare_is_not_right() -> None:
    found = failure(verify(with_infinities(1.0), tiny_dot()))
    assert "expected results that the oracle can compare, got 100%" in found.message


def test_half_a_result_of_infinities_leaves_enough_to_compare() -> None:
    assert References(with_infinities(0.5)).case("normal").uncompared == 0.5


def test_infinities_in_results_are_no_warning() -> None:
    x, w, m = whole(4, 8), whole(8, 16, seed=1), whole(4, 16, seed=2)
    case = Case("masked", lambda x, w, m: jnp.where(m > 0, x @ w, -jnp.inf), (x, w, m))
    built = build(case.compute, tiled(case, host_target()), host_target())
    with warnings.catch_warnings(action="error"):
        verdict = verify(case.kernel, built)
    assert isinstance(verdict, Verdict), verdict


def test_denominators_and_arguments_of_logarithms_are_positive() -> None:
    t = "tensor<8xf32>"
    found = domains(
        graph(
            f"%arg0: {t}, %arg1: {t}, %arg2: {t}",
            f'  %0 = "stablehlo.log"(%arg0) : ({t}) -> {t}\n'
            f'  %1 = "stablehlo.add"(%arg1, %0) : ({t}, {t}) -> {t}\n'
            f'  %2 = "stablehlo.divide"(%arg2, %1) : ({t}, {t}) -> {t}\n'
            f"  return %2 : {t}",
            t,
        )
    )
    assert found == (Domain(positive=True), Domain(positive=True), Domain())


def test_a_square_under_a_root_leaves_its_argument_free() -> None:
    t = "tensor<8xf32>"
    found = domains(
        graph(
            f"%arg0: {t}",
            f'  %0 = "stablehlo.multiply"(%arg0, %arg0) : ({t}, {t}) -> {t}\n'
            f'  %1 = "stablehlo.sqrt"(%0) : ({t}) -> {t}\n  return %1 : {t}',
            t,
        )
    )
    assert found == (Domain(),)


def test_indices_stay_in_their_dimension() -> None:
    table, row = "tensor<6x4xf32>", "tensor<1x4xf32>"
    found = domains(
        graph(
            f"%arg0: {table}, %arg1: tensor<i32>, %arg2: tensor<i32>",
            '  %0 = "stablehlo.dynamic_slice"(%arg0, %arg1, %arg2) '
            f"<{{slice_sizes = array<i64: 1, 4>}}> : ({table}, tensor<i32>, tensor<i32>) -> {row}\n"
            f"  return %0 : {row}",
            row,
        )
    )
    assert found == (Domain(), Domain(below=6), Domain(below=1))


@pytest.mark.parametrize("kind", ["integers", "normal", "special"])
def test_inputs_of_every_kind_are_finite_and_of_their_type(kind: str) -> None:
    names = ["f64", "f32", "bf16", "f16", "i1", "i8", "ui8", "i32", "ui64"]
    arguments = ", ".join(
        f"%arg{i}: tensor<40xTYPE>".replace("TYPE", n) for i, n in enumerate(names)
    )
    found = graph(arguments, "  return %arg0 : tensor<40xf64>", "tensor<40xf64>")
    values = draw(found, kind, np.random.default_rng(0))  # type: ignore[arg-type]
    assert all(np.isfinite(v.astype(np.float64)).all() for v in values)
    assert [v.dtype.itemsize for v in values] == [8, 4, 2, 2, 1, 1, 1, 4, 8]

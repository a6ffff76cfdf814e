"""Calls of kernels that follow each other are one call, which gives what they gave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlotune.codegen.runtime.abi import TARGET
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.custom_calls import aliases_of, calls
from hlotune.hlo.mlir.walking import operations_in
from tests.codegen.test_dispatcher import program
from tests.support.merged_programs import (
    WHOLE,
    F,
    G,
    X,
    Y,
    bind_kernels,
    call,
    merged,
    run,
    sites,
    written,
)

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    bind_kernels()


def test_a_chain_of_calls_is_one_whose_values_take_turns_in_two_places() -> None:
    module = merged(
        written(
            call("a", "double", "%p"), call("b", "triple", "%a"), call("c", "double", "%b"),
            call("d", "triple", "%c"), gives="%d",
        )
    )  # fmt: skip
    (site,) = calls(module, TARGET)
    assert [str(t) for t in (*site.arguments, *site.results)] == [F, F, "tensor<128xui8>"]
    assert sites(module) == ["doubletripledoubletriple"]
    np.testing.assert_array_equal(run(module)(X, Y)[0], 36 * X)


def test_a_value_that_is_read_outside_is_a_result_that_later_kernels_read_too() -> None:
    module = merged(
        written(
            call("a", "double", "%p"), call("b", "add", "%a", "%q"), call("c", "add", "%a", "%b"),
            gives="%c, %a",
        )
    )  # fmt: skip
    (site,) = calls(module, TARGET)
    assert len(site.arguments) == 2
    assert [str(t) for t in site.results] == [F, F, "tensor<64xui8>"]
    c, a = run(module)(X, Y)
    np.testing.assert_array_equal(c, 4 * X + Y)
    np.testing.assert_array_equal(a, 2 * X)


def test_calls_all_of_whose_results_are_read_outside_share_no_memory() -> None:
    module = merged(written(call("a", "double", "%p"), call("b", "triple", "%a"), gives="%a, %b"))
    assert [str(t) for t in calls(module, TARGET)[0].results] == [F, F]
    np.testing.assert_array_equal(run(module)(X, Y), [2 * X, 6 * X])


def test_a_result_that_nobody_reads_has_a_place_all_the_same() -> None:
    module = merged(written(call("a", "double", "%p"), call("b", "triple", "%p"), gives="%a"))
    np.testing.assert_array_equal(run(module)(X, Y)[0], 2 * X)


def test_a_reshape_is_no_reason_to_stop_and_may_be_read_outside() -> None:
    module = merged(
        written(
            call("a", "double", "%p"), f"%r = stablehlo.reshape %a : ({F}) -> {G}",
            f"%s = stablehlo.reshape %r : ({G}) -> {F}", call("b", "triple", "%s"),
            f"%t = stablehlo.add %r, %r : {G}", f"%u = stablehlo.reshape %t : ({G}) -> {F}",
            gives="%b, %u",
        )
    )  # fmt: skip
    assert sites(module) == ["doubletriple"]
    np.testing.assert_array_equal(run(module)(X, Y), [6 * X, 4 * X])


def test_what_xla_computes_in_between_parts_two_runs() -> None:
    module = merged(
        written(
            call("a", "double", "%p"), call("b", "triple", "%a"),
            f"%m = stablehlo.add %b, %q : {F}",
            call("c", "double", "%m"), call("d", "triple", "%q"), call("e", "add", "%c", "%d"),
            gives="%e",
        )
    )  # fmt: skip
    assert sites(module) == ["doubletriple", "doubletripleadd"]
    np.testing.assert_array_equal(run(module)(X, Y)[0], 12 * X + 5 * Y)


@pytest.mark.parametrize(
    ("between", "is_alone"),
    [
        (f"%m = stablehlo.reshape %a : ({F}) -> {F}", 1),
        (f"%m = stablehlo.constant dense<1.0> : {F}", 1),
        (f"%m = stablehlo.add %p, %q : {F}", 1),
        (
            "%c = stablehlo.constant dense<1.0> : tensor<4097xf32>\n"
            "%d = stablehlo.add %c, %c : tensor<4097xf32>\n"
            f"%m = stablehlo.slice %d [0:8] : (tensor<4097xf32>) -> {F}",
            0,
        ),
        (f"%m = stablehlo.custom_call @another(%p) : ({F}) -> {F}", 0),
        (
            "%t = stablehlo.constant dense<true> : tensor<i1>\n"
            f'%m = "stablehlo.if"(%t) ({{ stablehlo.return %p : {F} }}, '
            f"{{ stablehlo.return %q : {F} }}) : (tensor<i1>) -> {F}",
            0,
        ),
    ],
)
def test_threads_wait_longer_for_the_next_call_where_xla_has_next_to_nothing_to_compute(
    between: str, is_alone: int
) -> None:
    text = written(call("a", "double", "%p"), between, call("b", "add", "%a", "%m"), gives="%b")
    (site,) = calls(merged(text), TARGET)
    assert site.config["alone"] == is_alone


def test_one_call_between_operations_of_xla_is_left_as_it_is() -> None:
    text = written(
        call("a", "double", "%p"), f"%m = stablehlo.add %a, %q : {F}", call("b", "triple", "%m"),
        gives="%b",
    )  # fmt: skip
    assert str(merged(text).op) == str(mlir.parse(text).op)


def test_calls_in_the_body_of_a_loop_are_merged() -> None:
    body = "\n".join([call("a", "double", "%v"), call("b", "triple", "%a")])
    loop = f"""
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %w:2 = stablehlo.while(%i = %zero, %v = %p) : tensor<i32>, {F}
      cond {{
        %n = stablehlo.constant dense<3> : tensor<i32>
        %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }} do {{
        {body}
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next, %b : tensor<i32>, {F}
      }}"""
    module = merged(written(loop, gives="%w#1"))
    assert sites(module) == ["doubletriple"]
    np.testing.assert_array_equal(run(module)(X, Y)[0], 216 * X)


def test_a_value_that_a_loop_reads_is_read_outside() -> None:
    loop = f"""
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %w:2 = stablehlo.while(%i = %zero, %v = %p) : tensor<i32>, {F}
      cond {{
        %n = stablehlo.constant dense<2> : tensor<i32>
        %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }} do {{
        %sum = stablehlo.add %v, %a : {F}
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next, %sum : tensor<i32>, {F}
      }}"""
    first = [call("a", "double", "%p"), call("b", "triple", "%a")]
    module = merged(written(*first, loop, gives="%w#1, %b"))
    np.testing.assert_array_equal(run(module)(X, Y), [5 * X, 6 * X])


def test_kernels_have_their_scratch_one_behind_the_other() -> None:
    module = merged(
        written(
            call("a", "reverse", "%p", kind=WHOLE, scratch=64),
            call("b", "reverse", "%a#0", kind=WHOLE, scratch=64), gives="%b#0", kind=WHOLE,
        )
    )  # fmt: skip
    assert [str(t) for t in calls(module, TARGET)[0].results] == [WHOLE, "tensor<128xui8>"]
    x = np.arange(8)
    for _ in range(20):
        np.testing.assert_array_equal(run(module)(x, x)[0], 4 * x)


def aliases(module: mlir.Module) -> list[tuple[int, int]]:
    (site,) = operations_in(module.op.operation, lambda n: n == "stablehlo.custom_call")
    with module.op.context:
        return aliases_of(site)


def test_a_result_stays_in_the_memory_of_an_argument_that_earlier_kernels_read() -> None:
    module = merged(
        written(
            call("a", "add", "%p", "%q"), call("b", "double", "%p", over=0),
            call("c", "triple", "%a"),
            gives="%b, %c", donates=True,
        )
    )  # fmt: skip
    assert aliases(module) == [(0, 0)]
    np.testing.assert_array_equal(run(module)(X, Y), [2 * X, 3 * (X + Y)])


@pytest.mark.parametrize(
    "lines",
    [
        [call("c", "add", "%p", "%b")],
        [
            f"%r = stablehlo.reshape %p : ({F}) -> {G}",
            f"%s = stablehlo.reshape %r : ({G}) -> {F}",
            call("c", "add", "%s", "%b"),
        ],
        [f"%s = stablehlo.optimization_barrier %p : {F}", call("c", "add", "%s", "%b")],
        [
            f"%s = stablehlo.slice %p [0:8] : ({F}) -> {F}",
            call("c", "add", "%s", "%b"),
        ],
    ],
)
def test_a_result_is_not_written_over_an_argument_that_a_later_kernel_may_read(
    lines: list[str],
) -> None:
    first = call("b", "double", "%p", over=0)
    module = merged(written(first, *lines, gives="%b, %c", donates=True))
    assert aliases(module) == []
    np.testing.assert_array_equal(run(module)(X, Y), [2 * X, 3 * X])


def test_scratch_that_tells_which_call_comes_first_may_be_read() -> None:
    """As in programs that were written so; the kernel takes no notice of its second operand."""
    config = '{api_version = 4 : i32, backend_config = {key = "double"}}'
    kinds = f"({F}, tensor<64xui8>) -> {F}"
    for between in ("", f"%m = stablehlo.add %a#0, %q : {F}"):
        late = f"%b = stablehlo.custom_call @{TARGET}({'%m' if between else '%p'}, %a#1) {config}"
        first = call("a", "triple", "%p", scratch=64)
        module = merged(written(first, between, f"{late} : {kinds}", gives="%b, %a#0"))
        wanted = 2 * (3 * X + Y) if between else 2 * X
        np.testing.assert_array_equal(run(module)(X, Y), [wanted, 3 * X])


def test_what_takes_more_memory_than_it_reads_is_made_late() -> None:
    """Kernels that read arguments alone, for the first and for the second product of XLA."""
    module = merged(
        written(
            call("a", "double", "%p"), call("b", "triple", "%q"), call("x", "double", "%p"),
            f"%m = stablehlo.multiply %a, %x : {F}", call("c", "double", "%m"),
            f"%n = stablehlo.multiply %c, %b : {F}", gives="%n",
        )
    )  # fmt: skip
    assert sites(module) == ["doubledouble", "tripledouble"]
    np.testing.assert_array_equal(run(module)(X, Y)[0], 8 * X * X * 3 * Y)


def test_calls_of_other_targets_are_no_kernels() -> None:
    text = written(call("a", "double", "%p"), call("b", "triple", "%a"), gives="%b")
    other = text.replace(f"@{TARGET}(%a)", "@another(%a)")
    assert str(merged(other).op) == str(mlir.parse(other).op)


LINES = st.lists(
    st.tuples(
        st.sampled_from(["double", "add", "xla", "reshape"]), st.integers(0, 9), st.integers(0, 9)
    ),
    min_size=1,
    max_size=9,
)


def drawn(lines: list[tuple[str, int, int]], gives: set[int]) -> str:
    """A program whose operations each read values before them, chosen by number."""
    values, found = ["%p", "%q"], list[str]()
    for k, (kind, first, second) in enumerate(lines):
        x, y, name = values[first % len(values)], values[second % len(values)], f"v{k}"
        found += {
            "double": [call(name, "double", x)],
            "add": [call(name, "add", x, y)],
            "xla": [f"%{name} = stablehlo.subtract {x}, {y} : {F}"],
            "reshape": [
                f"%t{k} = stablehlo.reshape {x} : ({F}) -> {G}",
                f"%{name} = stablehlo.reshape %t{k} : ({G}) -> {F}",
            ],
        }[kind]
        values.append(f"%{name}")
    kept = [v for i, v in enumerate(values) if i in gives or i == len(values) - 1]
    return written(*found, gives=", ".join(kept))


@given(LINES, st.sets(st.integers(2, 11)))
@settings(max_examples=60, deadline=None)
def test_a_program_gives_what_it_gave_before(
    lines: list[tuple[str, int, int]], gives: set[int]
) -> None:
    text = drawn(lines, gives)
    before, after = program(text)(X, Y), run(merged(text))(X, Y)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)

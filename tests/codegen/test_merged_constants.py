"""What kernels of a merged call are given, and errors where they lack something."""

import jax
import numpy as np
import pytest

from hlotune.codegen.built import Packed
from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.dispatcher import bind, bind_empty, slot
from hlotune.codegen.runtime.loader import load
from hlotune.codegen.runtime.merged_calls import merge_calls
from hlotune.hlo.mlir import module as mlir
from tests.support.ir_kernels import build, scale, status, status_text
from tests.support.merged_programs import (
    F,
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


def test_a_kernel_may_read_the_part_of_a_stack_that_an_index_names() -> None:
    bind("part", scale(3, 8, (Packed(0, 32, "kernel"),)))
    config = 'backend_config = {key = "part", stacks = 1 : i64}'
    text = f"""module {{
      func.func public @main(%x: {F}, %w: tensor<128xui8>, %i: tensor<i64>) -> {F} {{
        {call("a", "double", "%x")}
        %b = stablehlo.custom_call @{TARGET}(%w, %a, %i) {{api_version = 4 : i32, {config}}} :
          (tensor<128xui8>, {F}, tensor<i64>) -> {F}
        {call("c", "add", "%a", "%b")}
        return %c : {F}
      }} }}"""
    module = merged(text)
    assert sites(module) == ["doublepartadd"]
    stack = np.zeros((2, 16), np.float32)
    stack[:, :8] = [X, Y]
    for index, part in enumerate((X, Y)):
        got = run(module)(X, stack.reshape(-1).view(np.uint8), np.int64(index))
        np.testing.assert_array_equal(got[0], 2 * X + 3 * part)
    with pytest.raises(jax.errors.JaxRuntimeError, match="'part' failed with status -2"):
        run(module)(X, stack.reshape(-1).view(np.uint8), np.int64(2))


def pair(second: str, *operands: str) -> mlir.Module:
    return merged(written(call("a", "double", "%p"), call("b", second, *operands), gives="%b"))


def test_what_is_bound_can_change_between_calls() -> None:
    bind("changing", scale(2, 8))
    changing = run(pair("changing", "%a"))
    np.testing.assert_array_equal(changing(X, Y)[0], 4 * X)
    bind("changing", scale(5, 8))
    np.testing.assert_array_equal(changing(X, Y)[0], 10 * X)


def test_a_kernel_that_is_not_loaded_is_an_error_that_names_it() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel 'unheard of' is not loaded"):
        run(pair("unheard of", "%a"))


def test_a_slot_without_kernel_is_an_error_that_names_it() -> None:
    slot("unbound in a pair")
    with pytest.raises(jax.errors.JaxRuntimeError, match="'unbound in a pair' has a slot, but"):
        run(pair("unbound in a pair", "%a"))(X, Y)


def test_a_kernel_that_fails_is_an_error_that_names_it() -> None:
    bind("failing of two", status(-3))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'failing of two' failed with status -3"):
        run(pair("failing of two", "%a"))(X, Y)


def test_too_little_scratch_is_an_error_that_names_both_amounts() -> None:
    bind("greedy of two", load(build(status_text(0), scratch_bytes=64)))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="'greedy of two' needs 64 bytes of scratch"
    ):
        run(pair("greedy of two", "%a"))(X, Y)


@pytest.mark.parametrize("operand", ["%p", "%a"])
def test_a_kernel_does_not_run_without_its_packed_argument(operand: str) -> None:
    bind("choosy of two", load(build(status_text(0), packed=(Packed(0, 32, "kernel"),))))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'choosy of two' needs argument 0 packed"):
        run(pair("choosy of two", operand))(X, Y)


def test_a_kernel_does_not_run_without_an_argument() -> None:
    bind("second of two", load(build(status_text(0), packed=(Packed(1, 32, "kernel"),))))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'second of two' needs argument 1 packed"):
        run(pair("second of two", "%a"))(X, Y)


def test_empty_kernels_return_at_once() -> None:
    bind_empty("empty in a pair")
    assert run(pair("empty in a pair", "%a"))(X, Y)[0].shape == (8,)


def constants(*values: np.ndarray) -> tuple[mlir.Module, tuple[np.ndarray, ...]]:
    """A program that reads its last arguments, 32 bytes each, packed, and adds them all up."""
    bind("packed", scale(3, 8, (Packed(0, 32, "kernel"),)))
    kind = "tensor<32xui8>"
    lines, names = list[str](), [f"%c{i}" for i in range(len(values))]
    for i, name in enumerate(names):
        config = '{api_version = 4 : i32, backend_config = {key = "packed"}}'
        lines.append(f"%w{i} = stablehlo.custom_call @{TARGET}({name}) {config} : ({kind}) -> {F}")
        lines.append(call(f"s{i}", "add", f"%s{i - 1}" if i else "%p", f"%w{i}"))
    head = ", ".join([f"%p: {F}", *(f"{name}: {kind}" for name in names)])
    last = f"%s{len(values) - 1}"
    module = mlir.parse(
        f"module {{ func.func public @main({head}) -> {F} {{\n"
        + "\n".join(lines)
        + f"\nreturn {last} : {F} }} }}"
    )
    left = merge_calls(module, values)
    module.check("a program with constants that are parts of others")
    return module, left


def test_small_constants_are_parts_of_one() -> None:
    values = [(Y + i).view(np.uint8) for i in range(3)]
    module, left = constants(*values)
    assert [x.nbytes for x in left] == [192]
    assert [str(t) for t in mlir.signature(module).arguments] == [F, "tensor<192xui8>"]
    np.testing.assert_array_equal(run(module)(X, *left)[0], X + 3 * (Y + Y + 1 + Y + 2))


def test_a_large_constant_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlotune.codegen.runtime.merged_calls.LEAST_APART_BYTES", 32)
    values = [(Y + i).view(np.uint8) for i in range(2)]
    module, left = constants(*values)
    assert all(a is b for a, b in zip(left, values, strict=True))
    np.testing.assert_array_equal(run(module)(X, *left)[0], X + 3 * (Y + Y + 1))


def test_a_kernel_does_not_run_on_a_part_that_is_too_short() -> None:
    bind("long", load(build(status_text(0), packed=(Packed(0, 65, "kernel"),))))
    config = '{api_version = 4 : i32, backend_config = {key = "long"}}'
    module = mlir.parse(
        f"module {{ func.func public @main(%c: tensor<32xui8>) -> {F} {{\n"
        f"%w = stablehlo.custom_call @{TARGET}(%c) {config} : (tensor<32xui8>) -> {F}\n"
        f"return %w : {F} }} }}"
    )
    left = merge_calls(module, [np.zeros(32, np.uint8)])
    with pytest.raises(jax.errors.JaxRuntimeError, match="'long' needs argument 0 packed in 65"):
        run(module)(*left)


def test_a_constant_that_xla_reads_too_stays_an_argument() -> None:
    text = written(call("a", "double", "%p"), f"%b = stablehlo.add %q, %q : {F}",
                   call("c", "add", "%q", "%b"), gives="%a, %c")  # fmt: skip
    module = mlir.parse(text)
    given = Y.view(np.uint8)
    assert merge_calls(module, [given]) == (given,)
    assert [str(t) for t in mlir.signature(module).arguments] == [F, F]

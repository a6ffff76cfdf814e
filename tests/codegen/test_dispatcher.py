"""The custom call: kernels inside XLA's programs, on XLA's buffers and threads."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import sched_getaffinity
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import backend
from jaxlib import xla_client
from numpy.typing import NDArray

from hlotune.codegen.built import Packed
from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.call_module import Parts, replacement
from hlotune.codegen.runtime.dispatcher import bind, bind_empty, slot
from hlotune.codegen.runtime.loader import load
from hlotune.hlo.graph import TensorType
from hlotune.schedules.errors import BuildError
from tests.support.ir_kernels import (
    aligned,
    build,
    guarded_scratch,
    reversal,
    scale,
    status,
    status_text,
    visits,
)

pytestmark = pytest.mark.smoke

Array = NDArray[Any]
F32 = TensorType((8,), "f32")
X = np.arange(8, dtype=np.float32)


def program(text: str) -> Callable[..., list[Array]]:
    """Compiles the text of a module; called with arrays it returns arrays."""
    client = backend.get_backend("cpu")
    devices = xla_client.DeviceList((client.local_devices()[0],))
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    executable = client.compile_and_load(text.encode(), devices, options)

    def run(*arrays: Array) -> list[Array]:
        with jax.enable_x64(True):
            out = executable.execute_sharded([jnp.asarray(a) for a in arrays])
        return [np.asarray(a[0]) for a in out.disassemble_into_single_device_arrays()]

    return run


def vector_call(key: str) -> Callable[..., list[Array]]:
    """A program of one call, f32[8] to f32[8]."""
    return program(replacement(key, [F32], [F32], 0, {}))


def calls(*keys: str) -> str:
    """A program that passes f32[8] through one call after another."""
    text = ["module {", "  func.func public @main(%v0: tensor<8xf32>) -> tensor<8xf32> {"]
    for i, key in enumerate(keys):
        text.append(
            f"    %v{i + 1} = stablehlo.custom_call @hlotune_call(%v{i}) {{api_version = 4 : i32, "
            f'backend_config = {{key = "{key}"}}}} : (tensor<8xf32>) -> tensor<8xf32>'
        )
    return "\n".join([*text, f"    return %v{len(keys)} : tensor<8xf32>", "  }", "}"])


def test_a_program_may_chain_calls_of_several_kernels() -> None:
    bind("chain.2", scale(2, 8))
    bind("chain.3", scale(3, 8))
    run = program(calls("chain.2", "chain.3", "chain.2"))
    np.testing.assert_array_equal(run(X)[0], 12 * X)


def test_what_is_bound_can_change_between_calls_of_one_program() -> None:
    bind("swap", scale(2, 8))
    run = vector_call("swap")
    first = run(X)[0]
    bind("swap", scale(5, 8))
    np.testing.assert_array_equal(first, 2 * X)
    np.testing.assert_array_equal(run(X)[0], 5 * X)


def test_what_is_bound_can_change_while_calls_run() -> None:
    bind("busy", scale(2, 8))
    run, stop = vector_call("busy"), Event()

    def results() -> set[float]:
        seen = set()
        while not stop.is_set():
            seen.add(float(run(X)[0][1]))
        return seen

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(results) for _ in range(2)]
        for i in range(100):
            bind("busy", scale(2 + i % 2, 8))
        stop.set()
    assert set().union(*(r.result() for r in running)) <= {2.0, 3.0}


def test_a_bound_kernel_stays_in_memory_until_another_takes_its_place() -> None:
    loaded = scale(2, 8)
    library = weakref.ref(loaded.library)
    bind("memory", loaded)
    del loaded
    gc.collect()
    assert library() is not None
    bind_empty("memory")
    gc.collect()
    assert library() is None


def test_a_slot_belongs_to_its_key() -> None:
    assert slot("same") == slot("same") != slot("other")


def test_a_key_may_be_any_text() -> None:
    key = 'conv "3x3"\\ größer\n'
    bind(key, scale(4, 8))
    np.testing.assert_array_equal(vector_call(key)(X)[0], 4 * X)


def test_a_key_that_begins_like_another_is_another() -> None:
    bind("prefix", scale(2, 8))
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel 'prefi' is not loaded"):
        vector_call("prefi")


def test_the_empty_kernel_returns_at_once() -> None:
    bind_empty("empty")
    assert vector_call("empty")(X)[0].shape == (8,)


def test_a_key_without_slot_is_an_error_that_says_what_to_do() -> None:
    message = r"NOT_FOUND: hlotune_call: kernel 'unheard' is not loaded.*; load the program through"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        vector_call("unheard")


def test_a_slot_without_kernel_is_an_error_that_says_what_to_do() -> None:
    slot("unbound")
    run = vector_call("unbound")
    message = r"FAILED_PRECONDITION: .* 'unbound' has a slot, but no machine code.*; bind it"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(X)


def test_a_call_without_key_is_an_error() -> None:
    dispatcher.ensure_registered()
    text = calls("x").replace('key = "x"', "kay = 1 : i64")
    message = r"INVALID_ARGUMENT: .* expected a string attribute 'key', got none; make"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        program(text)


def test_a_kernel_that_fails_is_an_error_that_names_it() -> None:
    bind("failing", status(-3))
    run = vector_call("failing")
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"INTERNAL: .*'failing' failed with status -3; take"
    ):
        run(X)


def test_binding_an_entry_that_the_kernel_has_not_is_refused() -> None:
    with pytest.raises(BuildError, match=r"expected one of \['kernel'\], got 'prepack_9'"):
        bind("entries", status(0), "prepack_9")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 1000])
def test_loops_in_the_pool_run_every_index_once(n: int) -> None:
    key, i64 = f"visits.{n}", TensorType((n,), "i64")
    bind(key, load(visits(n, threads=4)))
    run = program(replacement(key, [], [i64, i64], 0, {}))
    for _ in range(20):
        counts, slots = run()
        assert (counts == 1).all()
        assert ((slots >= 0) & (slots < 4)).all()


@pytest.mark.skipif(
    len(sched_getaffinity(0)) == 1, reason="XLA's pool has as many threads as there are cores"
)
def test_loops_run_on_several_threads_each_with_one_contiguous_range() -> None:
    i64 = TensorType((100_001,), "i64")
    bind("visits.shared", load(visits(100_001, threads=2)))
    run = program(replacement("visits.shared", [], [i64, i64], 0, {}))
    slots = next(s for s in (run()[1] for _ in range(1000)) if s.max() > 0)
    np.testing.assert_array_equal(slots, np.arange(100_001) >= 50_001)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000])
def test_loops_of_one_kernel_run_one_after_another(n: int) -> None:
    key, i64 = f"reversal.{n}", TensorType((n,), "i64")
    bind(key, load(reversal(n, threads=2)))
    run = program(replacement(key, [i64], [i64], 8 * n, {}))
    for i in range(50):
        x = np.arange(i, i + n)
        np.testing.assert_array_equal(run(x)[0], 2 * x[::-1])


def test_a_kernel_built_for_one_thread_gets_one() -> None:
    i64 = TensorType((100,), "i64")
    bind("visits.serial", load(visits(100, threads=1)))
    assert set(program(replacement("visits.serial", [], [i64, i64], 0, {}))()[1]) == {0}


def test_calls_that_run_at_the_same_time_have_scratch_of_their_own() -> None:
    """Eight calls in one program that do not depend on each other, and two runs of it at a time."""
    bind("scratch", load(guarded_scratch(words=4096, rounds=100)))
    run = program(side_by_side("scratch", 8, TensorType((1,), "i64"), 8 * 4096))
    values = [np.array([i], np.int64) for i in range(8)]
    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(lambda _: run(*values), range(4)):
            assert [int(r[0]) for r in results] == list(range(8))


def side_by_side(key: str, count: int, one: TensorType, scratch_bytes: int) -> str:
    """A program of calls on an argument each, results in order."""
    call = replacement(key, [one], [one], scratch_bytes, {}).splitlines()[2]
    lines = [call.replace("%r", f"%r{i}").replace("%a0", f"%a{i}") for i in range(count)]
    arguments = ", ".join(f"%a{i}: {one}" for i in range(count))
    types = ", ".join([str(one)] * count)
    results = ", ".join(f"%r{i}#0" for i in range(count))
    head = f"func.func public @main({arguments}) -> ({types}) {{"
    return "\n".join(["module {", head, *lines, f"return {results} : {types}", "}", "}"])


def test_too_little_scratch_is_an_error_that_names_both_amounts() -> None:
    bind("greedy", load(reversal(8, threads=1)))
    i64 = TensorType((8,), "i64")
    run = program(replacement("greedy", [i64], [i64], 63, {}))
    message = r"'greedy' needs 64 bytes of scratch, .* gives 63; compile"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(np.arange(8))


def test_all_addresses_are_64_byte_aligned() -> None:
    bind("aligned", aligned(3, 3))
    odd = [TensorType((n,), "ui8") for n in (1, 3, 77)]
    run = program(replacement("aligned", odd, odd[:2], 1001, {}))
    run(*(np.zeros(t.shape, np.uint8) for t in odd))


def test_a_packed_argument_takes_the_place_of_the_original() -> None:
    bind("packed", scale(3, 8))
    other = TensorType((2, 2), "f32")
    run = program(replacement("packed", [other, F32], [F32], 0, {0: 32}))
    result = run(np.ones((2, 2), np.float32), np.zeros(8, np.float32), X.view(np.uint8))
    np.testing.assert_array_equal(result[0], 3 * X)


@pytest.mark.parametrize(
    "wrong",
    [
        TensorType((32,), "f32"),
        TensorType((32, 32), "ui8"),
        TensorType((31,), "ui8"),
        TensorType((), "ui8"),
    ],
    ids=str,
)
def test_a_kernel_does_not_run_on_an_argument_packed_otherwise(wrong: TensorType) -> None:
    bind("choosy", load(build(status_text(0), packed=(Packed(0, 32, "kernel"),))))
    run = program(replacement("choosy", [wrong], [F32], 0, {}))
    message = r"'choosy' needs argument 0 packed in 32 bytes.*; compile"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(np.zeros(wrong.shape, wrong.dtype.replace("ui", "uint").replace("f32", "float32")))


def test_a_kernel_does_not_run_without_its_packed_argument() -> None:
    bind("short", load(build(status_text(0), packed=(Packed(1, 32, "kernel"),))))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'short' needs argument 1 packed"):
        vector_call("short")(X)


@pytest.mark.parametrize("kind", ["i32", "ui8", "i64"])
def test_a_call_reads_the_part_of_a_stack_that_its_index_names(kind: str) -> None:
    bind("stack", scale(3, 8, (Packed(0, 32, "kernel"),)))
    parts = Parts(3, TensorType((), kind))
    run = program(
        replacement("stack", [TensorType((2, 2), "f32")], [F32], 0, {0: 32}, (), {0: parts})
    )
    stack = np.zeros(
        (3, 16), np.float32
    )  # a part of 32 bytes begins 64 bytes behind the one before
    stack[:, :8] = [X, X + 1, X + 2]
    for index, part in ((0, 0), (1, 1), (2, 2), (9, 2), *(() if kind == "ui8" else ((-1, 0),))):
        place = np.array(index, kind.replace("i", "int"))
        result = run(np.zeros((2, 2), np.float32), place, stack.reshape(-1).view(np.uint8))
        np.testing.assert_array_equal(result[0], 3 * (X + part))


def test_a_kernel_does_not_run_on_a_part_beyond_its_stack() -> None:
    bind("beyond", scale(3, 8, (Packed(0, 32, "kernel"),)))
    parts = Parts(3, TensorType((), "i64"))
    text = replacement("beyond", [F32], [F32], 0, {0: 32}, (), {0: parts})
    run = program(text.replace("dense<2>", "dense<3>"))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'beyond' failed with status -2"):
        run(X, np.int64(3), np.zeros(192, np.uint8))


def test_a_replacement_has_the_signature_of_its_site_and_one_argument_for_each_packed_one() -> None:
    types = [TensorType((2, 3), "f32"), TensorType((), "i1"), TensorType((4,), "bf16")]
    assert replacement("k", types, [TensorType((5, 6, 7), "ui8")], 640, {2: 64, 0: 128}) == (
        "module {\n"
        "  func.func public @main(%a0: tensor<2x3xf32>, %a1: tensor<i1>, %a2: tensor<4xbf16>, "
        "%a3: tensor<128xui8>, %a4: tensor<64xui8>) -> (tensor<5x6x7xui8>) {\n"
        "    %r:2 = stablehlo.custom_call @hlotune_call(%a3, %a1, %a4) {api_version = 4 : i32, "
        'backend_config = {key = "k", scratch_bytes = 640 : i64}, '
        "operand_layouts = [dense<[0]> : tensor<1xindex>, dense<> : tensor<0xindex>, "
        "dense<[0]> : tensor<1xindex>], "
        "result_layouts = [dense<[2, 1, 0]> : tensor<3xindex>, dense<[0]> : tensor<1xindex>]} "
        ": (tensor<128xui8>, tensor<i1>, tensor<64xui8>) -> (tensor<5x6x7xui8>, tensor<640xui8>)\n"
        "    return %r#0 : tensor<5x6x7xui8>\n"
        "  }\n"
        "}\n"
    )


def test_registering_again_changes_nothing() -> None:
    bind("again", scale(2, 8))
    dispatcher.ensure_registered()
    np.testing.assert_array_equal(vector_call("again")(X)[0], 2 * X)

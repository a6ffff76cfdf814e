"""Large arguments and results of kernels that are called again lie in pages of 2 MiB."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend import backend
from jaxlib import xla_client
from numpy.typing import NDArray

from hlotune.codegen.llvm.compile import compile_for_process
from hlotune.codegen.runtime import moved_pages
from hlotune.codegen.runtime.call_module import replacement
from hlotune.codegen.runtime.dispatcher import bind, bind_empty, slot
from hlotune.codegen.runtime.loader import Library
from hlotune.hlo.graph import TensorType
from tests.support.ir_kernels import scale, status
from tests.support.pages import (
    NO_LARGE,
    PAGE,
    advised,
    in_large_pages,
    mapped,
    needs_moves,
    put_into_small_pages,
    small_pages,
    whole_pages,
)

SIZE = 4 * PAGE
BYTES = TensorType((SIZE,), "ui8")
FEW = TensorType((8,), "f32")
ASK = """
define i32 @ask(i64 %begin, i64 %bytes, i32 %is_ours) {
  %ours = trunc i32 %is_ours to i1
  %fine = call i1 @large_pages(i64 %begin, i64 %bytes, i1 %ours, i1 true)
  %wide = zext i1 %fine to i32
  ret i32 %wide
}"""


def site(key: str, arguments: Sequence[TensorType], result: TensorType) -> Callable[..., Any]:
    """A program of one call of what is bound to a key."""
    slot(key)
    client = backend.get_backend("cpu")
    devices = xla_client.DeviceList((client.local_devices()[0],))
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    text = replacement(key, arguments, [result], 0, {})
    executable = client.compile_and_load(text.encode(), devices, options)

    def run(*given: Any) -> Any:
        out = executable.execute_sharded(list(given)).disassemble_into_single_device_arrays()
        return out[0][0].block_until_ready()

    return run


def asking(text: str) -> Callable[[int, int, int], int]:
    """The function `large_pages` of a text, told to move."""
    library = Library(compile_for_process(text + ASK, "pages"), ("ask",), "pages")
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
    return lambda *given: int(kind(library.address("ask"))(*given))


def on_device(memory: NDArray[Any]) -> Any:
    """The same memory as an array of JAX's."""
    given = jax.device_put(memory)
    assert given.unsafe_buffer_pointer() == memory.ctypes.data
    return given


def large(memory: NDArray[Any]) -> int:
    return in_large_pages(memory.ctypes.data, memory.nbytes)


@needs_moves
@pytest.mark.parametrize("megabytes", [8, 3])
def test_large_arguments_of_calls_that_are_repeated_lie_in_large_pages(megabytes: int) -> None:
    size = megabytes << 20
    memory = small_pages(size)
    given, key = on_device(memory), f"pages of {size}"
    bind(key, status(0))
    run = site(key, [TensorType((size,), "ui8")], FEW)
    seen = []
    for _ in range(3):
        run(given)
        seen.append(large(memory))
    assert seen == ([0, size, size] if megabytes == 8 else [0, 0, 0])
    assert (memory == 1).all()


@needs_moves
def test_many_bytes_have_smaller_arguments_moved_too() -> None:
    """What a call of 8 MiB leaves in small pages one of 64 MiB moves."""
    parts = [small_pages(2 * PAGE)[: n << 20] for n in (1, 2, 3)]
    for rest, moved in ((8, 0), (58, PAGE)):
        memory = small_pages(rest << 20)
        kinds = [TensorType((x.size,), "ui8") for x in (*parts, memory)]
        key = f"pages beside {rest}"
        bind(key, status(0))
        run, given = site(key, kinds, FEW), [on_device(x) for x in (*parts, memory)]
        for _ in range(2):
            run(*given)
        assert [large(x) for x in parts] == [0, moved, moved]


@needs_moves
def test_large_results_of_calls_that_are_repeated_lie_in_large_pages() -> None:
    """Also in memory that was kept from them for what lay there before."""
    key, kind = "pages of results", TensorType((SIZE // 4,), "f32")
    bind(key, scale(2, SIZE // 4))
    run, given = site(key, [kind], kind), on_device(small_pages(SIZE).view(np.float32))
    seen = []
    for _ in range(3):
        result = run(given)
        place = result.unsafe_buffer_pointer(), SIZE
        low, high = whole_pages(*place)
        seen.append(in_large_pages(*place) == high - low)
        put_into_small_pages(*place)
        del result
    assert seen[1:] == [True, True]


@needs_moves
def test_calls_of_nothing_move_nothing_and_do_not_count() -> None:
    memory, key = small_pages(SIZE), "pages of nothing"
    run, given = site(key, [BYTES], FEW), on_device(memory)
    bind_empty(key)
    for _ in range(5):
        run(given)
    assert large(memory) == 0
    bind(key, status(0))
    run(given)
    assert large(memory) == 0
    run(given)
    assert large(memory) == SIZE


@needs_moves
def test_calls_of_nothing_that_are_to_move_leave_nothing_to_those_of_kernels() -> None:
    memory, later, key = small_pages(SIZE), small_pages(SIZE), "pages moved by nothing"
    run, given = site(key, [BYTES], FEW), on_device(memory)
    bind_empty(key, moves=True)
    for _ in range(moved_pages.MOVING_CALLS):
        run(given)
    assert large(memory) == SIZE
    bind(key, status(0))
    run(on_device(later))
    assert large(later) == 0


@needs_moves
def test_what_its_owner_keeps_from_large_pages_stays_and_ends_all_moves_of_a_site() -> None:
    kept, memory, key = small_pages(SIZE), small_pages(SIZE), "pages kept"
    assert advised(kept.ctypes.data, SIZE, NO_LARGE)
    bind(key, status(0))
    run = site(key, [BYTES, BYTES], FEW)
    first, second = on_device(kept), on_device(memory)
    for given in ((second, second), (first, second), (second, second)):
        assert large(memory) == 0
        run(*given)
    assert large(memory) == large(kept) == 0


@needs_moves
def test_pages_that_nobody_touched_are_not_made_and_are_no_refusal() -> None:
    sparse, memory, key = mapped(SIZE), small_pages(SIZE), "pages of gaps"
    sparse[::PAGE] = 1
    bind(key, status(0))
    run = site(key, [BYTES, BYTES], FEW)
    for _ in range(3):
        run(on_device(sparse), on_device(memory))
    assert large(sparse) == 0
    assert large(memory) == SIZE


@needs_moves
@pytest.mark.parametrize("pages", [1, 16, 19])
def test_a_range_is_moved_in_stretches_up_to_its_end(pages: int) -> None:
    memory = small_pages(pages * PAGE + 1000)
    ask = asking(moved_pages.functions())
    assert ask(memory.ctypes.data, memory.nbytes, 0) == 1
    assert large(memory) == pages * PAGE


@needs_moves
@pytest.mark.parametrize("pages", [0, 2])
def test_pages_in_which_a_range_begins_and_ends_are_moved_as_well(pages: int) -> None:
    memory = small_pages((pages + 2) * PAGE)
    ask = asking(moved_pages.functions())
    assert ask(memory.ctypes.data + PAGE // 2, (pages + 1) * PAGE, 1) == 1
    assert large(memory) == memory.nbytes
    assert (memory == 1).all()


@needs_moves
def test_pages_of_which_others_have_not_touched_all_stay_and_are_no_refusal() -> None:
    memory = mapped(4 * PAGE)
    memory[PAGE // 2 : 4 * PAGE - PAGE // 2] = 1
    ask = asking(moved_pages.functions())
    assert ask(memory.ctypes.data + PAGE // 2, 3 * PAGE, 0) == 1
    assert large(memory) == 2 * PAGE


@needs_moves
def test_pages_that_another_mapping_shares_stay_and_are_no_refusal() -> None:
    memory = small_pages(4 * PAGE)
    assert advised(memory.ctypes.data, PAGE, NO_LARGE)
    ask = asking(moved_pages.functions())
    assert ask(memory.ctypes.data + PAGE // 2, 2 * PAGE, 0) == 1
    assert large(memory) == 2 * PAGE


@needs_moves
@pytest.mark.parametrize("is_ours", [False, True])
def test_advice_for_good_is_given_for_memory_of_ours_alone(is_ours: bool) -> None:
    memory = small_pages(SIZE)
    assert advised(memory.ctypes.data, SIZE, NO_LARGE)
    ask = asking(moved_pages.functions())
    assert ask(memory.ctypes.data, SIZE, int(is_ours)) == is_ours
    assert large(memory) == (SIZE if is_ours else 0)


@pytest.mark.parametrize("modes", ["always madvise [never]\n", None])
def test_a_system_with_small_pages_alone_is_asked_for_nothing(
    modes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "enabled"
    if modes is not None:
        file.write_text(modes, encoding="ascii")
    monkeypatch.setattr(moved_pages, "LARGE_PAGES", file)
    text = moved_pages.functions()
    assert "advise" not in text
    assert "mincore" not in text
    memory = small_pages(SIZE)
    assert asking(text)(memory.ctypes.data, SIZE, 1) == 1

"""Machine code: compiled, stored, linked into the process, called, let go."""

import ctypes
import gc
import struct
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import numpy as np
import pytest

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.llvm import compile as compiling
from hlotune.codegen.llvm.compile import assembly, compile_object
from hlotune.codegen.runtime import hosts
from hlotune.codegen.runtime.loader import Loaded, load
from hlotune.schedules.errors import BuildError
from tests.support.ir_kernels import build, scale, status, target
from tests.support.tree import ROOT

X86_64, AARCH64 = 62, 183
ADD = """
define <16 x float> @kernel(<16 x float> %a, <16 x float> %b) {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}"""


@pytest.mark.parametrize(
    ("isa", "features", "triple", "machine"),
    [
        ("x86-64", (), "x86_64-unknown-linux-gnu", X86_64),
        ("x86-64-v3", (), "x86_64-unknown-linux-gnu", X86_64),
        ("znver4", ("avx512bf16", "avx512f"), "x86_64-unknown-linux-gnu", X86_64),
        ("generic", ("neon",), "aarch64-unknown-linux-gnu", AARCH64),
    ],
)
def test_objects_are_emitted_for_each_kind_of_processor(
    isa: str, features: tuple[str, ...], triple: str, machine: int
) -> None:
    machine_code = compile_object(ADD, target(isa, features, triple))
    assert machine_code[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", machine_code, 18) == (machine,)


@pytest.mark.parametrize(
    ("isa", "features", "register"),
    [
        ("x86-64", (), "%xmm0"),
        ("x86-64-v3", ("avx", "avx2"), "%ymm0"),
        ("znver4", ("avx512f",), "%zmm0"),
    ],
)
def test_assembly_uses_the_registers_of_the_target(
    isa: str, features: tuple[str, ...], register: str
) -> None:
    text = assembly(ADD, target(isa, features))
    assert register in text
    assert "addps" in text


@pytest.mark.parametrize(
    ("features", "register"), [(("avx", "avx2", "fma"), "%ymm0"), (("sse2",), "%xmm0")]
)
def test_what_a_hypervisor_hides_of_a_processor_is_not_used(
    features: tuple[str, ...], register: str
) -> None:
    text = assembly(ADD, target("znver4", features))
    assert register in text
    assert "%zmm" not in text


def test_llvm_knows_every_extension_that_may_be_hidden() -> None:
    text = f"""
from hlotune.codegen.llvm.compile import EXTENSIONS, assembly
from tests.support.ir_kernels import target
for triple in EXTENSIONS:
    assembly({ADD!r}, target("", (), triple + "-unknown-linux-gnu"))
"""
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True)
    assert b"not a recognized feature" not in done.stderr


STRIDED = """
define void @kernel(ptr %x, ptr %y, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %row = mul nsw i64 %i, 1884
  %from = getelementptr inbounds i8, ptr %x, i64 %row
  %value = load float, ptr %from, align 4
  %to = getelementptr inbounds float, ptr %y, i64 %i
  store float %value, ptr %to, align 4
  %next = add nsw i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %done
done:
  ret void
}"""


def own_assembly(text: str) -> str:
    """What somebody else who uses llvmlite in this process gets."""
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(opt=2)
    return str(machine.emit_assembly(llvm.parse_assembly(text)))


def test_addresses_are_computed_where_the_text_has_them() -> None:
    text = assembly(STRIDED, target())
    assert "imul" in text
    assert "$1884" in text


def test_others_who_compile_in_this_process_get_the_options_of_llvm() -> None:
    compile_object(STRIDED, target())
    assert "imul" not in own_assembly(STRIDED)


def test_a_compilation_that_fails_leaves_the_options_of_llvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        triple = "x86_64-unknown-linux-gnu"
        target_data = ""

        def emit_object(self, module: object) -> bytes:
            raise MemoryError

    monkeypatch.setattr(compiling, "_machine", lambda *_: Broken())
    with pytest.raises(MemoryError):
        compile_object(STRIDED, target())
    assert "imul" not in own_assembly(STRIDED)


def test_threads_that_compile_at_once_get_what_one_alone_gets() -> None:
    alone = compile_object(STRIDED, target())
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: compile_object(STRIDED, target()), range(200)))
    assert set(found) == {alone}


def test_text_that_does_not_parse_is_refused_with_its_line() -> None:
    with pytest.raises(
        BuildError, match=r"valid LLVM text for 'conv'.*mend(.|\n)*:3:8(.|\n)*lod i32"
    ):
        compile_object("\ndefine i32 @kernel(ptr %p) {\n  %x = lod i32, ptr %p\n", target(), "conv")


def test_text_that_uses_a_value_before_its_definition_is_refused_with_the_instruction() -> None:
    text = """
define i32 @kernel(i1 %c) {
  br i1 %c, label %a, label %b
a:
  %late = add i32 1, 2
  br label %b
b:
  ret i32 %late
}"""
    with pytest.raises(BuildError, match=r"dominate(.|\n)*%late = add i32 1, 2"):
        compile_object(text, target())


def test_an_unknown_triple_is_refused() -> None:
    with pytest.raises(BuildError, match=r"expected an LLVM triple such as.*'abacus-none'"):
        compile_object(ADD, target(triple="abacus-none"))


def test_a_built_kernel_survives_storing() -> None:
    built = Built(b"\x7fELF\n\n\x00code", 4096, (Packed(1, 640, "prepack_0"),), 123, 2)
    assert Built.from_bytes(built.to_bytes()) == built


def test_the_key_of_a_built_kernel_is_that_of_its_machine_code() -> None:
    one, other = (Built(b"code", n, (), n, n) for n in (1, 2))
    assert one.key == other.key
    assert len(one.key) == 32
    assert one.key != Built(b"edoc", 1, (), 1, 1).key


def stored() -> bytes:
    return Built(b"code", 0, (), 0, 1).to_bytes()


@pytest.mark.parametrize(
    "data",
    [b"", b"something else", stored()[:-1], stored().replace(b"flops", b"plops")],
    ids=["nothing", "foreign", "cut", "field"],
)
def test_bytes_that_are_no_built_kernel_are_refused(data: bytes) -> None:
    with pytest.raises(BuildError, match=r"expected a kernel stored by this version"):
        Built.from_bytes(data)


def test_a_loaded_kernel_computes() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    code = scale(2.5, 8).call("kernel", [x.ctypes.data], [y.ctypes.data], 0, hosts.serial())
    assert code == 0
    np.testing.assert_array_equal(y, 2.5 * x)


def test_a_call_returns_the_status_of_the_kernel() -> None:
    assert status(-7).call("kernel", [], [], 0, hosts.serial()) == -7


def test_packing_functions_are_entries_of_their_own() -> None:
    text = "define i32 @{}(ptr %call) {{ ret i32 {} }}\n"
    built = build(
        text.format("kernel", 1) + text.format("prepack_1", 2), packed=(Packed(1, 64, "prepack_1"),)
    )
    assert load(built).call("prepack_1", [], [], 0, hosts.serial()) == 2


def test_an_entry_that_the_kernel_has_not_is_refused() -> None:
    with pytest.raises(BuildError, match=r"expected one of \['kernel'\], got 'prepack_0'"):
        status(0).call("prepack_0", [], [], 0, hosts.serial())


def test_an_object_without_its_kernel_is_refused() -> None:
    with pytest.raises(
        BuildError, match=r"defines \['kernel'\].*not found: \[ kernel \].*build it"
    ):
        load(build("define i32 @colonel(ptr %call) { ret i32 0 }"))


def test_an_object_for_another_processor_is_refused() -> None:
    arm = compile_object(ADD, target("", (), "aarch64-unknown-linux-gnu"))
    with pytest.raises(BuildError, match=r"expected an object for \S+ .*build it for this machine"):
        load(Built(arm, 0, (), 0, 1))


def test_code_lives_as_long_as_the_loaded_kernel() -> None:
    loaded = status(5)
    library = weakref.ref(loaded.library)
    gc.collect()
    assert library() is not None
    assert loaded.call("kernel", [], [], 0, hosts.serial()) == 5
    del loaded
    gc.collect()
    assert library() is None


def test_equal_objects_are_loaded_independently() -> None:
    built = build("@count = internal global i32 0\n" + COUNTING)
    one, other = load(built), load(built)
    assert [call(one), call(one), call(other)] == [1, 2, 1]


COUNTING = """
define i32 @kernel(ptr %call) {
  %old = load i32, ptr @count
  %new = add i32 %old, 1
  store i32 %new, ptr @count
  ret i32 %new
}"""


def call(loaded: Loaded) -> int:
    return loaded.call("kernel", [], [], 0, hosts.serial())


def test_a_kernel_may_use_what_llvm_calls_from_the_c_library() -> None:
    block = ctypes.create_string_buffer(100_000)
    text = """
define i32 @kernel(ptr %call) {
  %args = load ptr, ptr %call
  %block = load ptr, ptr %args
  call void @llvm.memset.p0.i64(ptr %block, i8 7, i64 100000, i1 false)
  ret i32 0
}"""
    load(build(text)).call("kernel", [ctypes.addressof(block)], [], 0, hosts.serial())
    assert set(block.raw) == {7}

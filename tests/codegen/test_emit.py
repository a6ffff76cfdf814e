"""Emitted text, and objects for every kind of processor."""

import platform
import re
import struct
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.compile import assembly, compile_object
from hlotune.codegen.llvm.emit import Emitted, emit
from hlotune.codegen.runtime.hosts import serial, shuffled, threaded
from hlotune.codegen.runtime.loader import load
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import BuildError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import ComputeAt, Pack, Reorder, Split, Step, Vectorize
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import NHWC, SMALL, Case, batched, call, conv, gemm, named, tiled, whole
from tests.support.contraction_cases import DTYPES

AVX512 = TARGETS["znver4"]
MACHINES = {"x86_64": 62, "aarch64": 183}
"""What ELF headers call a processor."""


FROM_C = {"memcpy", "memmove", "memset"}
"""What LLVM calls of its own accord, and every process has."""
SYMBOLS = 2
"""The kind of section in which ELF files have theirs."""


def needed(machine_code: bytes) -> set[str]:
    """Names that an ELF object of 64 bits takes from elsewhere."""
    (start,) = struct.unpack_from("<Q", machine_code, 40)
    size, count = struct.unpack_from("<HH", machine_code, 58)
    places = (start + size * k for k in range(count))
    sections = [struct.unpack_from("<IIQQQQII", machine_code, place) for place in places]
    names = set()
    for _, kind, _, _, offset, length, link, _ in sections:
        table = machine_code[offset : offset + length] if kind == SYMBOLS else b""
        for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
            if name and not section:
                text, _, _ = machine_code[sections[link][4] + name :].partition(b"\0")
                names.add(text.decode())
    return names


def emitted(case: Case, target: CpuTarget, schedule: Schedule | None = None) -> Emitted:
    space = case.space(target)
    return emit(replay(case.compute, schedule or space.schedule(space.heuristic()), target))


def test_the_text_of_a_tiny_product(golden: str) -> None:
    case = gemm(4, 18, 3)
    assert emitted(case, AVX512, tiled(case, AVX512, register={"i0": 2})).text == golden


def test_the_text_of_a_tiny_padded_convolution(golden: str) -> None:
    case = conv(3, 2, 2, 16)
    schedule = tiled(
        case, AVX512, register={"i1": 2}, group={"i0": 3}, unroll={"r1": 3}, clip=["r0"]
    )
    assert emitted(case, AVX512, schedule).text == golden


def test_the_same_nest_has_the_same_text() -> None:
    assert emitted(named("small conv"), AVX512) == emitted(conv(9, 11, 5, 19), AVX512)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_objects_are_made_for_every_processor(name: str, target: CpuTarget) -> None:
    _, built = named(name).heuristic(target)
    assert built.object[:4] == b"\x7fELF"
    (machine,) = struct.unpack_from("<H", built.object, 18)
    assert machine == MACHINES[target.triple.partition("-")[0]]
    assert built.threads == target.threads
    assert built.flops > 0


def typed(form: str, kind: str) -> Case:
    """A product or a padded convolution, with a smooth function behind floats."""
    narrow, wide = DTYPES[kind]

    def function(x: Any, w: Any) -> Any:
        if form == "product":
            y = jnp.dot(x, w, preferred_element_type=wide)
        else:
            y = lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=NHWC, preferred_element_type=wide
            )
        return jnp.maximum(y, 0) if kind == "i8->i32" else jnp.tanh(y)

    shapes = ((9, 24), (24, 37)) if form == "product" else ((1, 5, 6, 4), (3, 3, 4, 37))
    return Case(f"{form} {kind}", function, tuple(whole(*s, dtype=narrow) for s in shapes))


@pytest.mark.parametrize("form", ["product", "convolution"])
@pytest.mark.parametrize("kind", ["f64", "bf16", "f16", "i8->i32"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_objects_of_every_type_need_nothing_but_the_c_library(
    form: str, kind: str, target: CpuTarget
) -> None:
    """The first candidate of each algorithm."""
    compute = typed(form, kind).compute
    space = space_of(compute, target)
    for config in space.firsts():
        built = build(compute, space.schedule(config), target)
        (machine,) = struct.unpack_from("<H", built.object, 18)
        assert machine == MACHINES[target.triple.partition("-")[0]]
        assert needed(built.object) <= FROM_C, built.algorithm


def test_what_an_object_needs_is_read_from_its_symbols() -> None:
    text = "declare float @sinf(float)\ndefine float @kernel(float %x) {\n"
    text += "  %y = call float @sinf(float %x)\n  ret float %y\n}"
    assert needed(compile_object(text, AVX512)) == {"sinf"}


@pytest.mark.parametrize(
    ("target", "registers"),
    [("x86-64", "xmm"), ("x86-64-v3", "ymm"), ("znver4", "zmm"), ("aarch64", "v")],
)
def test_code_uses_the_vectors_of_its_target(target: str, registers: str) -> None:
    text = assembly(emitted(gemm(24, 64, 16), TARGETS[target]).text, TARGETS[target])
    multiplies = [x for x in text.splitlines() if re.search(r"\t(v?mulps|vfmadd|fmla)", x)]
    assert sum(registers in x for x in multiplies) > len(multiplies) / 2 > 0
    assert "fmaf" not in text  # a call a lane, where there is no such instruction


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code of x86-64")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "znver4"])
def test_code_for_older_processors_is_right_here(name: str, target: str) -> None:
    missing = set(TARGETS[target].features) - set(host_target().features)
    if missing:
        pytest.skip(f"this processor lacks {' '.join(sorted(missing))}")
    case = named(name)
    _, built = case.heuristic(TARGETS[target])
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code of x86-64")
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
def test_random_schedules_for_older_processors_are_right_here(target: str) -> None:
    if set(TARGETS[target].features) - set(host_target().features):
        pytest.skip("this processor is older")
    for name in ("small conv", "strided conv"):
        case = named(name)
        space, references = case.space(TARGETS[target]), References(case.kernel)
        for config in space.sample(5, np.random.default_rng(0)):
            schedule = space.schedule(config)
            built = build(case.compute, schedule, TARGETS[target])
            verdict = verify(case.kernel, built, references=references)
            assert isinstance(verdict, Verdict), (schedule.to_json(), verdict)


def test_the_last_lane_of_a_narrow_type_is_stored_in_its_own_width() -> None:
    """LLVM 22 makes four bytes of a masked store of one bfloat16 for AVX-512."""
    x, w = (whole(*s, dtype=ml_dtypes.bfloat16, largest=1) for s in ((4, 8), (8, 17)))
    case = Case("narrow", lambda x, w: x @ w, (x, w))
    text = emitted(case, AVX512, tiled(case, AVX512)).text
    lines = [x for x in text.splitlines() if "call void @llvm.masked.store" in x]
    assert not any(x.count("i1 true") == 1 for x in lines)
    built = build(case.compute, tiled(case, host_target()), host_target())
    assert isinstance(verify(case.kernel, built), Verdict)


def test_inserted_zeros_along_rows_and_borders_along_vectors_go_together() -> None:
    x, w = whole(1, 6, 21, 1), whole(3, 3, 1, 1, seed=1)
    options: dict[str, Any] = {"lhs_dilation": (2, 1), "dimension_numbers": NHWC}

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], **options)

    case = Case("transposed", function, (x, w))
    schedule = tiled(
        case, host_target(), register={"i0": 11}, unroll={"r0": 3, "r1": 3}, packs={"a1": "call"}
    )
    built = build(case.compute, schedule, host_target())
    assert isinstance(verify(case.kernel, built), Verdict)


def test_results_have_the_same_bits_on_every_host_and_number_of_threads() -> None:
    case = batched(3, 17, 33, 19)
    space = case.space(host_target())
    for config in space.sample(4, np.random.default_rng(1)):
        loaded = load(build(case.compute, space.schedule(config), host_target()))
        first, *others = (call(loaded, case, h)[0] for h in (serial(), shuffled(3, 2), threaded(2)))
        for other in others:
            np.testing.assert_array_equal(first.view(np.uint32), other.view(np.uint32))


def test_a_constant_packed_when_it_is_loaded_has_an_entry_of_its_own() -> None:
    made = emitted(named("strided conv"), AVX512)
    ((argument, entry, size),) = made.packed
    assert f"define i32 @{entry}(ptr %call)" in made.text
    assert made.text.count("define i32 @kernel(ptr %call)") == 1
    constant = named("strided conv").compute.tensor(argument)
    assert constant.role == "constant"
    assert size >= constant.bytes


def test_no_flag_but_contract_stands_on_arithmetic() -> None:
    """Nothing allows LLVM to reassociate or to ignore NaN: numbers depend on the schedule alone."""
    for name in SMALL:
        text = emitted(named(name), AVX512).text
        flags = re.findall(r"= f(?:add|sub|mul|div|neg|cmp) ((?:[a-z]+ )*)", text)
        assert all(f.split()[:-1] in ([], ["contract"]) or f in ("", "contract ") for f in flags)
        assert not re.search(r"\b(fast|nnan|ninf|nsz|reassoc|afn|arcp)\b", text)


def test_vectors_across_blocks_of_a_pack_are_refused() -> None:
    """Tiles of 12 start in the middle of a block of 8, and so would their first vector."""
    case = gemm(4, 48, 3)
    steps: list[Step] = [Split("out", "i1", (3, 4)), ComputeAt("contract", "out", "i1.0")]
    steps += [Split("contract", "i1", (8,)), Reorder("contract", ("i0", "r0", "i1.0", "i1.1"))]
    steps += [Vectorize("contract", "i1.1")]
    pack = Pack("contract", "a1", "", "call", ((1, 8), (0, 1), (1, 1)), 8)
    with pytest.raises(BuildError, match=r"^vectors of 8 do not lie inside blocks of 8: pack"):
        emitted(case, AVX512, Schedule("direct", (*steps, pack)))
    pack = Pack("contract", "a1", "", "call", ((1, 4), (0, 1), (1, 1)), 4)
    steps[2] = Split("contract", "i1", (4,))
    schedule = Schedule("direct", (*steps, pack))
    assert isinstance(verify(case.kernel, build(case.compute, schedule, host_target())), Verdict)


def test_vectors_of_one_lane_are_scalars() -> None:
    case = conv(5, 6, 3, 9)
    steps = Split("out", "i0", (1,)), Reorder("out", ("i2", "i1", "i0.0", "i0.1"))
    schedule = Schedule("direct", (*steps, Vectorize("out", "i0.1")))
    assert isinstance(verify(case.kernel, build(case.compute, schedule, host_target())), Verdict)

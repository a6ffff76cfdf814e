"""Loops in assembly, and the count of their cycles."""

import sys

import pytest

from benchmarks.assembly import Loop, functions_of, hottest, loops_of, parsed
from benchmarks.cases import source
from benchmarks.inner_loop import SHOWN, compact, described, flops_of, inner_loop, main
from benchmarks.ports import CORES, core_of, count, cycles
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of

TEXT = """
	.type	pack_0,@function
pack_0:
.LBB0_1:
	vfmadd231ps	%zmm1, %zmm2, %zmm3
	vfmadd231ps	%zmm1, %zmm2, %zmm4
	vfmadd231ps	%zmm1, %zmm2, %zmm5
	incq	%rax
	cmpq	$4096, %rax
	jl	.LBB0_1
	retq
	.type	stage_0,@function
stage_0:
.LBB1_1:
	xorl	%ecx, %ecx
.LBB1_2:
	vbroadcastss	(%rdi,%rcx,4), %zmm30
	vfmadd231ps	%zmm30, %zmm28, %zmm0
	vfmadd231ps	(%rsi), %zmm30, %zmm1
	vfmadd231ps	64(%rsi){1to16}, %zmm30, %zmm1
	addq	$2, %rcx	# two at once
	cmpq	$63, %rcx
	jl	.LBB1_2
	vmovups	%zmm0, -128(%rsp)
	incq	%rdx
	cmpq	$8, %rdx
	jl	.LBB1_1
.LBB1_4:
	vfmadd231ps	%zmm1, %zmm2, %zmm6
	vfmadd231ps	%zmm1, %zmm2, %zmm7
	vfmadd231ps	%zmm1, %zmm2, %zmm8
	vfmadd231ps	%zmm1, %zmm2, %zmm9
	decq	%r8
	jne	.LBB1_4
	retq
	.type	kernel,@function
kernel:
	leaq	stage_0(%rip), %rdx
	callq	*(%rdi)
	retq
	.type	prepack_0,@function
prepack_0:
	leaq	pack_0(%rip), %rdx
	retq
"""


def the_loop() -> Loop:
    found = hottest(TEXT)
    assert found
    return found


def test_the_hottest_loop_is_the_one_that_runs_most_multiply_adds() -> None:
    """Three of them 32 x 8 times, against four in a loop whose trips nobody knows."""
    assert (the_loop().function, the_loop().label, the_loop().trips) == ("stage_0", ".LBB1_2", 32)


def test_packing_ahead_of_time_is_no_part_of_a_call() -> None:
    assert set(functions_of(TEXT, "kernel")) == {"kernel", "stage_0"}
    found = hottest(TEXT, "prepack_0")
    assert found and found.function == "pack_0"


def test_without_multiply_adds_there_is_no_such_loop() -> None:
    assert hottest(TEXT.replace("vfmadd231ps", "vaddps")) is None


def test_loops_know_what_they_hold() -> None:
    loops = {x.label: x for x in loops_of("f", functions_of(TEXT, "kernel")["stage_0"])}
    assert loops[".LBB1_1"].holds(loops[".LBB1_2"])
    assert not loops[".LBB1_1"].holds(loops[".LBB1_4"])
    assert [x.trips for x in loops.values()] == [32, 8, None]


def test_what_a_pass_does_is_counted() -> None:
    found = count(the_loop().body)
    assert (found.multiply_adds, found.loads, found.stores, found.instructions) == (3, 3, 0, 7)
    assert (found.shuffles, found.other_arithmetic, found.spills) == (0, 0, 0)
    assert found.chain == 2  # both into %zmm1


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("vmovups %zmm0, -128(%rsp)", "stores"),
        ("vmovups -128(%rsp), %zmm0", "loads"),
        ("vpermt2ps %zmm0, %zmm1, %zmm2", "shuffles"),
        ("vbroadcastss %xmm0, %zmm1", "shuffles"),
        ("vmovddup %ymm0, %ymm1", "shuffles"),
        ("vmovshdup %ymm0, %ymm1", "shuffles"),
        ("vpblendmd %zmm0, %zmm1, %zmm2 {%k1}", "shuffles"),
        ("vpalignr $8, %ymm0, %ymm1, %ymm2", "shuffles"),
        ("vmovss %xmm0, %xmm1, %xmm2", "none"),
        ("vmovd %xmm0, %eax", "none"),
        ("vmaxps %zmm0, %zmm1, %zmm2", "other_arithmetic"),
        ("cmpq $3, (%rax)", "loads"),
        ("leaq (%rax,%rcx), %rdx", "none"),
    ],
)
def test_each_instruction_is_of_one_kind(line: str, kind: str) -> None:
    instruction = parsed(line.replace(" ", "\t", 1))
    assert instruction
    found = count([instruction])
    kinds = ("loads", "stores", "shuffles", "other_arithmetic")
    assert {k: getattr(found, k) for k in kinds} == {k: int(k == kind) for k in kinds}
    assert found.spills == ("rsp" in line)


@pytest.mark.parametrize(
    ("line", "loads", "stores"),
    [
        ("vgatherdps (%rax,%zmm1,4), %zmm2 {%k1}", 16, 0),
        ("vgatherqps (%rax,%zmm1,4), %ymm2 {%k1}", 8, 0),
        ("vgatherdpd %ymm3, (%rax,%xmm1,8), %ymm2", 4, 0),
        ("vpgatherdd (%rax,%zmm1,4), %zmm2 {%k1}", 16, 0),
        ("vpscatterdq %zmm2, (%rax,%ymm1,8) {%k1}", 0, 8),
        ("vscatterdps %zmm2, (%rax,%zmm1,4) {%k1}", 0, 16),
    ],
)
def test_each_lane_of_a_gather_or_scatter_is_an_access(line: str, loads: int, stores: int) -> None:
    instruction = parsed(line.replace(" ", "\t", 1))
    assert instruction
    found = count([instruction])
    assert (found.loads, found.stores) == (loads, stores)
    assert (found.shuffles, found.other_arithmetic, found.instructions) == (0, 0, 1)


@pytest.mark.parametrize(
    ("step", "bound", "trips"),
    [
        ("addq $2, %rax", "$63", 32),
        ("addq $0x10, %rax", "$0x40", 4),
        ("addq $.LCPI0, %rax", "$63", None),
        ("addq $2, %rax", "$.Lend", None),
        ("addq $2, %rax", "$-8", None),
        ("addq $2, %rax", "$0", None),
        ("addq $-2, %rax", "$8", None),
    ],
)
def test_trips_are_known_by_a_constant_step_up_to_a_constant_bound(
    step: str, bound: str, trips: int | None
) -> None:
    lines = [".L1:", f"\t{step}".replace(" ", "\t", 1), f"\tcmpq\t{bound}, %rax", "\tjl\t.L1"]
    (loop,) = loops_of("f", lines)
    assert loop.trips == trips


def test_the_longest_need_of_all_is_the_least_number_of_cycles() -> None:
    found = count(the_loop().body)
    assert cycles(found, CORES["znver5"])["multiply-adds"] == 1.5
    assert cycles(found, CORES["znver4"])["loads"] == 3.0
    needed = cycles(found, CORES["znver5"])
    assert max(needed, key=lambda name: needed[name]) == "chain of sums"
    assert needed["chain of sums"] == 8.0


def test_a_register_that_is_set_anew_in_each_pass_makes_no_chain() -> None:
    body = [i for line in ("vxorps\t%zmm0, %zmm0, %zmm0", "vfmadd231ps\t%zmm1, %zmm2, %zmm0")
            if (i := parsed(line))]  # fmt: skip
    assert count(body).chain == 0


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("vfmadd231ps\t%zmm1, %zmm2, %zmm3", 32),
        ("vfmadd231pd\t%ymm1, %ymm2, %ymm3", 8),
        ("vfmadd231ss\t%xmm1, %xmm2, %xmm3", 2),
        ("vdpbf16ps\t%zmm1, %zmm2, %zmm3", 64),
        ("vpdpbusd\t%zmm1, %zmm2, %zmm3", 128),
        ("vaddps\t%zmm1, %zmm2, %zmm3", 0),
    ],
)
def test_operations_of_an_instruction(text: str, flops: int) -> None:
    instruction = parsed(text)
    assert instruction and flops_of(instruction) == flops


def test_a_product_is_at_the_rate_of_its_multiply_adds_in_a_register_tile() -> None:
    kernel, target = sites(load(source("gemm_512")))[0].kernel, TARGETS["znver4"]
    space = space_of(compute_of(graph_of(kernel)), target)
    found = inner_loop(kernel, space.schedule(space.firsts()[0]), target)
    assert found and found.limit == "multiply-adds" and found.count.spills == 0
    assert found.flops == 2 * 16 * found.count.multiply_adds
    assert found.passes * found.flops * target.threads == 2 * 512**3
    at_least = 2 * 512**3 / (32 * target.threads) / 1e9
    assert found.least_s(1e9) == pytest.approx(at_least)
    assert found.loop.label in described(found, 1e9)


def test_of_a_long_loop_the_rest_is_counted_by_name() -> None:
    body = [i for k in range(SHOWN + 3) if (i := parsed(f"vaddps\t%zmm{k}, %zmm1, %zmm2"))]
    body += [i for line in ("incq\t%rax", "jl\t.L1") if (i := parsed(line))]
    *lines, last = compact(body)
    assert last == "and 5 more: 3 vaddps, 1 incq, 1 jl"
    assert " ".join(" ".join(lines).split()).count(", %zmm1, %zmm2") == SHOWN
    assert max(map(len, lines)) <= 110 and lines[0].startswith("vaddps %zmm0, %zmm1, %zmm2 | %zmm1")
    assert not [x for x in compact(body[:SHOWN]) if "more" in x]


def test_of_a_processor_without_a_count_nothing_is_said() -> None:
    with pytest.raises(ValueError, match=r"expected a processor among znver5, znver4 .* got "):
        core_of(TARGETS["x86-64-v3"])


def test_what_is_no_case_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inner_loop", "C99"])
    with pytest.raises(SystemExit):
        main()
    assert "expected a case of benchmarks/cases.py, got C99" in capsys.readouterr().err

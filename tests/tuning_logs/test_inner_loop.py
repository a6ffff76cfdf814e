"""The inner loop of assembly text, and which bound holds a kernel."""

import pytest

from hlotune.schedules.targets.limit import Limit
from hlotune.tuning_logs.page.bounds import parts, verdict
from hlotune.tuning_logs.page.inner_loop import inner_loop, window

X86 = """stage_0:
\tpushq\t%rbp
.LBB0_1:
\txorl\t%eax, %eax
.LBB0_2:
\tvmovups\t(%rdi,%rax), %zmm1
\tvfmadd231ps\t(%rsi,%rax){1to16}, %zmm1, %zmm2
\tvmovups\t%zmm3, 64(%rsp)
\tcmpq\t%rax, %rcx
\tjne\t.LBB0_2
\tjmp\t.LBB0_1
.LBB0_3:
\tincq\t%rdx
\tjne\t.LBB0_3
\tretq
"""
ARM = """kernel:
.LBB0_2:
\tldr\tq0, [x1], #16
\tfmla\tv2.4s, v0.4s, v1.s[0]
\tsubs\tx2, x2, #1
\tb.ne\t.LBB0_2
\tret
"""


def test_the_loop_with_the_multiply_adds_is_found_inside_its_outer_one() -> None:
    loop = inner_loop(X86)
    assert loop is not None
    assert X86.splitlines()[loop.first] == ".LBB0_2:"
    assert X86.splitlines()[loop.last] == "\tjne\t.LBB0_2"
    assert (loop.instructions, loop.multiply_adds, loop.from_memory, loop.stack) == (5, 1, 3, 1)


def test_it_is_found_in_code_for_arm_too() -> None:
    loop = inner_loop(ARM)
    assert loop is not None
    assert (loop.instructions, loop.multiply_adds, loop.from_memory) == (4, 1, 1)


def test_code_without_a_loop_has_none() -> None:
    assert inner_loop("kernel:\n\tretq\n") is None
    assert inner_loop("") is None


def test_a_window_lies_around_the_loop() -> None:
    loop = inner_loop(X86)
    assert window(15, loop, 20) == (0, 15)
    first, end = window(15, loop, 6)
    assert loop is not None and first <= loop.first and loop.last < end and end - first == 6
    assert window(100, None, 10) == (0, 10)


LIMIT = Limit(compute_s=1e-4, memory_s=4e-5)


def test_the_longest_part_holds_a_kernel_that_it_explains() -> None:
    found = parts(LIMIT, {}, 1e11, 1.1e-4)
    assert [p.name.partition(":")[0] for p in found] == ["compute", "memory"]
    assert verdict(found) == (
        "It is held by compute, which needs 91% of the measured time by itself."
    )


def test_where_no_part_explains_the_time_that_is_said() -> None:
    words = verdict(parts(LIMIT, {}, 1e11, 1e-3))
    assert words.startswith("No single part explains its time; the longest is compute")


def test_a_kernel_beyond_the_limit_says_what_that_means() -> None:
    words = verdict(parts(LIMIT, {}, 1e11, 5e-5))
    assert "above the measured time (200% of it): the algorithm saves arithmetic" in words


def test_estimates_of_caches_have_seconds_by_the_peak() -> None:
    features = {"flops": 20.0, "cost_loads": -1.0, "cost_l1": 1.0, "cost_l2": -16.0}
    features |= {"cost_l3": -2.0, "cost_packing": -16.0, "cost_waking": -3.0}
    found = {p.name[:2]: p for p in parts(None, features, 2.0**40, 1e-6)}
    assert found["L1"].time_s == pytest.approx(2.0**-19)
    assert "L2" not in found  # nothing to do
    assert all(p.is_estimate for p in found.values())


def test_without_any_bound_that_is_said() -> None:
    assert verdict(()).startswith("No bound is known")

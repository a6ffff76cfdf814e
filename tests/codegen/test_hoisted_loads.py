"""Numbers that all lanes share are loaded once for all vectors of a row, and never too early."""

import re
from functools import cache

from benchmarks.row_kernels import softmax
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay

TARGET = TARGETS["znver4"]


def test_the_sum_of_a_row_is_loaded_ahead_of_the_loop_over_its_quotients() -> None:
    lines = emitted()
    quotient = next(n for n, line in enumerate(lines) if "fdiv float" in line)
    loop = next(n for n, line in enumerate(lines) if n > quotient and line.startswith("loop"))
    assert load_of(quotient) < loop


def test_what_is_made_of_the_sum_alone_stands_ahead_of_that_loop() -> None:
    """The parts of its reciprocal: in the loop are a load, two products and a store a vector."""
    lines = emitted()
    quotient = next(n for n, line in enumerate(lines) if "fdiv float" in line)
    loop = next(n for n, line in enumerate(lines) if n > quotient and line.startswith("loop"))
    end = next(n for n, line in enumerate(lines) if n > loop and "br i1" in line)
    assert any("select i1" in line for line in lines[quotient:loop])
    body = [line for line in lines[loop:end] if "float" in line]
    assert len(body) % 4 == 0
    for how in ("= load <16 x float>", "= fmul <16 x float>", ".fma.v16f32", "store <16 x float>"):
        assert sum(how in line for line in body) == len(body) // 4


def test_the_sum_of_a_row_is_loaded_behind_the_loop_that_adds_it_up() -> None:
    lines = emitted()
    quotient = next(n for n, line in enumerate(lines) if "fdiv float" in line)
    added_up = max(n for n, line in enumerate(lines[:quotient]) if "store float" in line)
    assert load_of(quotient) > added_up


@cache
def emitted() -> tuple[str, ...]:
    """The text of softmax by its first candidate."""
    compute = softmax(512, 1024)
    space = space_of(compute, TARGET)
    nest = replay(compute, space.schedule(space.heuristic()), TARGET)
    return tuple(emit(nest).text.splitlines())


def load_of(quotient: int) -> int:
    """The line that loads the divisor of a line."""
    divisor = re.escape(emitted()[quotient].rsplit(" ", 1)[1])
    return next(n for n, line in enumerate(emitted()) if re.match(f"  {divisor} = load", line))

"""The benchmark of kernels without a contraction times what is right, and shows what it timed."""

from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.kernels.by_hand import CASES, arguments_of, cells, measured, table
from benchmarks.row_kernels import gelu, layer_norm, log_softmax, rms_norm, softmax, transpose
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import WrongResult
from tests.support.interpreter import interpret

SMALL: dict[str, Any] = {
    "softmax 512x1024": softmax, "log softmax 512x1024": log_softmax,
    "layer norm 512x1024": layer_norm, "RMS norm 512x1024": rms_norm,
    "gelu(x + bias) 512x3072": gelu, "transpose 1024x1024": transpose,
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_computes_of_cases_are_what_their_functions_compute(name: str) -> None:
    compute, (_, function) = SMALL[name](5, 33), CASES[name]
    values = arguments_of(compute)
    (found,) = interpret(compute, values)
    np.testing.assert_allclose(found, function(*values), rtol=1e-4, atol=1e-5)


def test_a_case_is_timed_beside_xla_and_shown() -> None:
    line = measured("toy", softmax(3, 33), jax.nn.softmax, host_target(), 1e-9, 0.0, 2)
    assert min(line.xla_s, line.first_s, line.best_s) > 0
    assert cells(line)[0] == "toy"
    assert "geometric means" in table([line]).notes[1]


def test_a_kernel_that_computes_something_else_is_not_timed() -> None:
    with pytest.raises(WrongResult, match="expected what XLA computes of y0"):
        measured("toy", softmax(3, 33), jax.nn.log_softmax, host_target(), 1e-9, 0.0, 0)

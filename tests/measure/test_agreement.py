"""Whether XLA's own result of a kernel agrees with the oracle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.bench import Bench
from hlotune.measure.verification.agreement import MOST_ERROR, agreement
from hlotune.measure.verification.inputs import Array
from hlotune.measure.verification.references import References
from hlotune.measure.workers import device_handler
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.runner import ProcessRunner
from tests.support.tiny_dot import kernel

Results = list[np.ndarray[Any, Any]]


def product(values: Sequence[Array]) -> Results:
    x, w = values
    return [(x.astype(np.float64) @ w.astype(np.float64)).astype(np.float32)]


def last_row_off(values: Sequence[Array]) -> Results:
    (result,) = product(values)
    result[-1] *= 1.01
    return [result]


def no_number(values: Sequence[Array]) -> Results:
    (result,) = product(values)
    result[0, 0] = np.nan
    return [result]


def test_a_right_result_agrees() -> None:
    found = agreement(product, References(kernel()))
    assert found is not None
    assert found.error < 1
    assert found.relative_error < 1e-6


def test_a_row_that_is_off_by_a_hundredth_does_not() -> None:
    found = agreement(last_row_off, References(kernel()))
    assert found is not None
    assert found.error > 1
    assert 1e-3 < found.relative_error < 0.02


def test_what_is_no_number_is_as_far_off_as_anything() -> None:
    found = agreement(no_number, References(kernel()))
    assert found is not None
    assert found.error == MOST_ERROR


def test_xlas_own_results_are_those_of_its_kernel() -> None:
    bench = Bench(kernel(), host_target(), "warm")
    found = agreement(bench.own_results, References(kernel()))
    assert found is not None
    assert found.error < 1


def test_the_runner_asks_its_worker() -> None:
    with ProcessRunner(host_target(), cache="warm") as runner:
        found = runner.agreement(kernel())
        assert found is not None and found.error < 1
        assert runner.agreement(Kernel("no kernel")) is None


def test_where_the_oracle_knows_nothing_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_handler, "agreement", lambda call, references: None)
    header = {"kernel": kernel().text, "target": {}, "cache": "warm"}
    monkeypatch.setattr(device_handler, "_settled", lambda header: host_target())
    reply = device_handler._agreement(Message(header))
    assert reply.header == {"is": "agreement"}

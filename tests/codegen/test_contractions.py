"""Any contraction, any schedule: what is built gives the numbers of the definition.

Contractions are drawn as JAX programs and go the whole road; NumPy says in integers what belongs in
every element.
"""

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from hlotune.cli.kernel_limits import schedules_of
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.hosts import serial, shuffled, threaded
from hlotune.codegen.runtime.loader import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.errors import BuildError
from hlotune.schedules.steps.schedule import Schedule
from tests.support.computes import Case, call
from tests.support.contraction_cases import MORE_INTEGERS, Drawn, contractions, convolved

TARGET = host_target()
HOSTS = (("behind", serial), ("before", lambda: shuffled(1, 3)), ("behind", lambda: threaded(2)))
BUILT = 0.95
"""Share of random schedules that must have code."""


def schedules(case: Case, n: int, seed: int) -> list[Schedule]:
    """The first candidate and random ones."""
    space = case.space(TARGET)
    configs = space.sample(n - 1, np.random.default_rng(seed))
    return [space.schedule(c) for c in (space.heuristic(), *configs)]


def builds(case: Case, candidates: list[Schedule]) -> list[tuple[Schedule, Built]]:
    found = []
    for schedule in candidates:
        try:
            found.append((schedule, build(case.compute, schedule, TARGET)))
        except BuildError as error:
            event(f"no code: {error}")
    return found


def is_right(drawn: Drawn, schedule: Schedule, built: Built) -> None:
    """What belongs there, on every host, with guard pages on either side."""
    loaded = load(built)
    for placement, host in HOSTS:
        (got,) = call(loaded, drawn.case, host(), placement)  # type: ignore[arg-type]
        drawn.check(got, schedule)


def agrees_with_the_oracle(case: Case, built: Built) -> None:
    """Also on inputs that are no integers."""
    verdict = verify(case.kernel, built, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


def check(drawn: Drawn, n: int, seed: int) -> None:
    found = builds(drawn.case, schedules(drawn.case, n, seed))
    assert len(found) >= BUILT * n
    for schedule, built in found:
        is_right(drawn, schedule, built)
    agrees_with_the_oracle(drawn.case, found[seed % len(found)][1])


@settings(max_examples=8)
@given(contractions(), st.integers(0, 2**32))
def test_any_schedule_of_any_contraction_gives_its_numbers(drawn: Drawn, seed: int) -> None:
    check(drawn, 5, seed)


@given(contractions())
def test_every_kernel_with_a_contraction_has_sketches(drawn: Drawn) -> None:
    """As `tune kernels` counts them: with what stands around it, and alone."""
    for site in sites(drawn.case.program):
        found = schedules_of(site.kernel)
        assert found.sketches > 0, (site.label, found.reason)


@pytest.mark.parametrize("kind", MORE_INTEGERS)
@settings(max_examples=2)
@given(st.data(), st.integers(0, 2**32))
def test_integers_of_any_type_wrap_as_they_should(
    kind: str, data: st.DataObject, seed: int
) -> None:
    check(data.draw(contractions(st.just(kind))), 2, seed)  # LLVM takes seconds for some


@pytest.mark.slow
@pytest.mark.parametrize("kind", MORE_INTEGERS)
@settings(max_examples=10)
@given(st.data(), st.integers(0, 2**32))
def test_integers_of_any_type_wrap_in_many_contractions(
    kind: str, data: st.DataObject, seed: int
) -> None:
    check(data.draw(contractions(st.just(kind))), 4, seed)


@pytest.mark.slow
@settings(max_examples=100)
@given(contractions(), st.integers(0, 2**32))
def test_thirty_schedules_of_any_contraction_give_its_numbers(drawn: Drawn, seed: int) -> None:
    check(drawn, 30, seed)


def test_the_reference_convolves_as_the_definition_reads() -> None:
    x, w = np.array([[[1, 2, 3]]]), np.array([[[10, 1]]])
    options = {
        "window_strides": (1,), "padding": [(1, 0)], "lhs_dilation": (2,), "rhs_dilation": (2,),
        "feature_group_count": 1, "batch_group_count": 1,
    }  # fmt: skip
    # 0 1 0 2 0 3, taps two apart: 10 * left + right
    np.testing.assert_array_equal(
        convolved(x, w, ["NCX", "OIX", "NCX"], "X", options),
        [[[0 * 10 + 0, 1 * 10 + 2, 0, 2 * 10 + 3]]],
    )

"""Activations behind contractions: what is built of them is right, also at the edges of a type."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.errors import BuildError
from tests.codegen.test_functions import inputs, unit
from tests.support.activations import IN_JAX, gelu, gelu_by_tanh, silu
from tests.support.computes import NHWC, Array, Case, call, whole
from tests.support.elementwise import NUMPY, level, runs_here

TARGET = host_target()
RANDOM = 2, pytest.param(20, marks=pytest.mark.slow)
"""Schedules of a kernel, beside the first candidate of each algorithm."""
FORMS = {
    "product": ((9, 24), (24, 37)),
    "convolution": ((1, 9, 11, 5), (3, 3, 5, 19)),
}


def behind(name: str, form: str, kind: str = "f32") -> Case:
    """An activation of a small product, or of a small convolution with padding."""

    def function(x: Any, w: Any) -> Any:
        if form == "product":
            y = x @ w
        else:
            y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
        return IN_JAX[name](y)

    arguments = tuple(whole(*shape, dtype=NUMPY[kind]) for shape in FORMS[form])
    return Case(f"{name} of a {form} in {kind}", function, arguments)


@pytest.mark.parametrize("count", RANDOM)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", IN_JAX)
def test_any_schedule_of_a_contraction_with_an_activation_is_right(
    name: str, form: str, count: int
) -> None:
    case = behind(name, form)
    references, space = References(case.kernel), space_of(case.compute, TARGET)
    configs = *space.firsts(), *space.sample(count, np.random.default_rng(0))
    without_code = 0
    for schedule in map(space.schedule, configs):
        try:
            built = build(case.compute, schedule, TARGET)
        except BuildError:
            without_code += 1
            continue
        verdict = verify(case.kernel, built, references=references)
        assert isinstance(verdict, Verdict), (case, schedule.to_json(), verdict)
    assert without_code <= max(1, count // 3)


@pytest.mark.parametrize("kind", ["f64", "bf16", "f16"])
@pytest.mark.parametrize("name", IN_JAX)
def test_an_activation_is_right_in_any_type(name: str, kind: str) -> None:
    case = behind(name, "product", kind)
    _, built = case.heuristic(TARGET)
    verdict = verify(case.kernel, built, references=References(case.kernel))
    assert isinstance(verdict, Verdict), (case, verdict)


# errors -------------------------------------------------------------------------------------------

DEFINITIONS: dict[str, Callable[[Array, Any], Array]] = {
    "gelu": gelu,
    "gelu by tanh": gelu_by_tanh,
    "silu": lambda x, _: silu(x),
}
MACHINES = [
    (kind, isa)
    for kind, isas in (("f32", ("x86-64", "x86-64-v3", "x86-64-v4")), ("bf16", ("x86-64-v3",)),
                       ("f16", ("x86-64-v3",)))
    for isa in isas
    if runs_here(isa)
]  # fmt: skip


@cache
def composed(name: str, kind: str, isa: str) -> tuple[Array, Array]:
    """Arguments of every size, and what a kernel makes of them: each is a sum of one term."""
    dense = np.linspace(-20, 20, 8001).astype(NUMPY[kind])
    x = np.concatenate([dense, inputs(kind)])
    with np.errstate(invalid="ignore"):  # NaN among them
        x = np.where(x == 0, np.zeros((), x.dtype), x)  # a sum that begins at 0 is never -0

    def function(x: Any, w: Any) -> Any:
        return IN_JAX[name](x @ w)

    case = Case(f"{name} of {kind}", function, (x[:, None], np.ones((1, 1), x.dtype)))
    _, built = case.heuristic(level(isa))
    (got,) = call(load(built), case, serial())
    return x, got[:, 0]


def allowed(name: str, x: Array, exact: Array) -> Array:
    """How far the result of a right kernel may be off that computes in f32.

    A gelu by tanh adds 1 to a tanh that may be near -1: what is left has the last place of the
    argument, until nothing is left.  In the other the rounding of the argument is multiplied by its
    square.  A sigmoid below the normal range may be 0.
    """
    single = np.dtype(np.float32)
    last = unit(exact, single)
    most: Array
    if name == "gelu by tanh":
        most = last + 3 * unit(np.maximum(x, -16), single)
    elif name == "gelu":
        most = (10 + np.square(np.clip(x, -16, 0))) * last
    else:
        most = 6 * last - np.clip(x, -104, 0) * float(np.finfo(single).tiny)
    return most


@pytest.mark.parametrize(("kind", "isa"), MACHINES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_activation_is_off_by_a_few_last_places_whatever_its_argument(
    name: str, kind: str, isa: str
) -> None:
    x, got = composed(name, kind, isa)
    with np.errstate(all="ignore"):
        wide, result = x.astype(np.float64), got.astype(np.float64)
        exact = DEFINITIONS[name](wide, NUMPY[kind])
        most = allowed(name, wide, exact)
        if kind != "f32":  # rounded once more
            most = most + 0.51 * unit(exact, NUMPY[kind])
        near = np.abs(result - exact) <= most
        right = near | (result == exact) | (np.isnan(result) & np.isnan(exact))
    k = int(np.argmin(right))
    assert right.all(), f"{name}({x[k]}) = {got[k]!r}, exact {exact[k]!r}, allowed {most[k]:.3g}"


@pytest.mark.parametrize(("kind", "isa"), MACHINES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_infinite_argument_is_kept_above_and_undefined_below(
    name: str, kind: str, isa: str
) -> None:
    """As the formulas have it: minus infinity is multiplied by a zero."""
    with np.errstate(invalid="ignore"):
        x, got = (v.astype(np.float64) for v in composed(name, kind, isa))
    assert {np.inf, -np.inf} <= set(x)
    assert (got[x == np.inf] == np.inf).all()
    assert np.isnan(got[(x == -np.inf) | np.isnan(x)]).all()
    assert np.isfinite(got[np.isfinite(x)]).all()

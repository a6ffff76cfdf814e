"""Winograd's convolution: the code of any schedule of it, its errors and their bound."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import Loaded, load
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.oracle import Oracle, OracleInTiles
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import TOLERANCE, Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.rewriting import winograd
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.algorithms.winograd.transforms import (
    LOOSE,
    PAIRS,
)
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import AddUp
from tests.support.computes import NHWC, Array, Case, call, whole
from tests.support.interpreter import interpret
from tests.support.winograd_cases import LAYOUTS, windowed, windows

OUTPUTS = sorted(PAIRS)


def of_outputs(case: Case, m: int) -> WinogradSpace:
    spaces = winograd_spaces(case.compute, host_target(), fast=True)
    return next(s for s in spaces if s.outputs == m)


def needed(m: int) -> Numerics:
    return "fast" if m in LOOSE else "standard"


def judged(case: Case, schedule: Schedule, m: int = 0) -> Verdict | Failure:
    built = build(case.compute, schedule, host_target())
    return verify(case.kernel, built, numerics=needed(m), thorough=True)


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("frozen", (False, True))
def test_the_first_candidate_is_right(m: int, frozen: bool) -> None:
    case = windowed(size=(14, 10), channels=8, features=40, frozen=frozen)
    space = of_outputs(case, m)
    found = judged(case, space.schedule(space.heuristic()), m)
    assert isinstance(found, Verdict), found
    assert found.numerics == needed(m)  # whatever the error: strict is for sums reordered


@pytest.mark.parametrize("spread", (0, 1))
@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("frozen", (False, True))
def test_wherever_inputs_and_weights_are_transformed_results_are_right(
    frozen: bool, layout: str, spread: int
) -> None:
    """Nine tiles in blocks of four, which rows of three do not divide; some groups of features."""
    case = windowed(channels=20, features=40, layout=layout, frozen=frozen)
    space = of_outputs(case, 4)
    values = (4, 3, 1, 1, 2, 0, 1 if frozen else 5, spread)
    knobs = [k.values.index(n) for k, n in zip(space.knobs, values, strict=True)]
    assert {s.apart for s in space.sketches} == {False, True}
    for k, sketch in enumerate(space.sketches):
        found = judged(case, space.schedule(np.array([k, *knobs], np.int32)), 4)
        assert isinstance(found, Verdict), (found, sketch)


@pytest.mark.parametrize("window", ((45, 3), (2, 45, 3)), ids=str)
@pytest.mark.parametrize("frozen", (False, True))
def test_sums_that_are_cut_along_taps_are_right(frozen: bool, window: tuple[int, ...]) -> None:
    """Three channels and 23 taps are a piece, the same and 22 the next."""
    case = windowed(
        size=(3, 10, 9)[-len(window):], window=window, channels=3, frozen=frozen,
        pads=((0, 1), (22, 22), (1, 1))[-len(window):],
    )  # fmt: skip
    space = of_outputs(case, 4)
    for k, sketch in enumerate(space.sketches):
        config = space.heuristic()
        config[0] = k
        assert any(isinstance(s, AddUp) for s in space.schedule(config).steps)
        found = judged(case, space.schedule(config), 4)
        assert isinstance(found, Verdict), (found, sketch)


@settings(max_examples=3)
@given(windows(), st.integers(0, 2**32))
def test_any_schedule_of_any_window_is_right(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for space in winograd_spaces(case.compute, host_target(), fast=True):
        found = judged(case, space.schedule(space.sample(1, rng)[0]), space.outputs)
        assert isinstance(found, Verdict), (found, space.outputs)


@pytest.mark.slow
@settings(max_examples=200)
@given(windows(), st.integers(0, 2**32))
def test_many_schedules_of_many_windows_are_right(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for space in winograd_spaces(case.compute, host_target(), fast=True):
        for config in space.sample(3, rng):
            found = judged(case, space.schedule(config), space.outputs)
            assert isinstance(found, Verdict), (found, space.outputs)


@pytest.mark.parametrize("target", ("x86-64", "x86-64-v3", "znver4", "aarch64"))
def test_objects_are_made_for_every_processor(target: str) -> None:
    case = windowed(frozen=True)
    for space in winograd_spaces(case.compute, TARGETS[target]):
        nest = replay(case.compute, space.schedule(space.heuristic()), TARGETS[target])
        assert compile_object(emit(nest).text, TARGETS[target])


def test_the_weights_of_a_constant_are_transformed_at_load_and_their_bytes_known() -> None:
    case = windowed(channels=5, features=19, frozen=True)
    space = winograd_spaces(case.compute, host_target())[1]
    built = build(case.compute, space.schedule(space.heuristic()), host_target())
    panel = space.numbers(space.heuristic()[None]).across[0] * space.lanes
    assert [p.bytes for p in built.packed] == [36 * 5 * -(-19 // panel) * panel * 4]
    assert built.algorithm == "winograd(4)"
    assert built.flops < winograd(4)(case.compute).stage("weights").flops * 100


# errors -------------------------------------------------------------------------------------------


def test_strict_numerics_refuse_what_cancels() -> None:
    case = windowed()
    space = winograd_spaces(case.compute, host_target())[0]
    built = build(case.compute, space.schedule(space.heuristic()), host_target())
    found = verify(case.kernel, built, numerics="strict")
    assert isinstance(found, Failure)
    assert "expected a schedule that only reorders sums" in found.message


def test_errors_that_amplify_more_are_for_fast_numerics_alone() -> None:
    case = windowed()
    space = of_outputs(case, 6)
    built = build(case.compute, space.schedule(space.heuristic()), host_target())
    found = verify(case.kernel, built, numerics="standard")
    assert isinstance(found, Failure)
    assert "allow fast numerics, or search without it" in found.message
    assert 6 not in {s.outputs for s in winograd_spaces(case.compute, host_target())}


@pytest.mark.parametrize("m", OUTPUTS)
def test_a_channel_that_is_lost_is_found(m: int) -> None:
    """Small integers leave no room for it, though transforms of them round."""
    case = windowed(channels=8)
    space = of_outputs(case, m)
    nest = replay(case.compute, space.schedule(space.heuristic()), host_target())
    products = nest.stage("products")
    (channel,) = products.stage.reduce
    shorter = replace(products.stage, reduce=(replace(channel, extent=channel.extent - 1),))
    emitted = emit(nest.put(replace(products, stage=shorter)))
    right = build(case.compute, space.schedule(space.heuristic()), host_target())
    wrong = replace(right, object=compile_object(emitted.text, host_target()))
    found = verify(case.kernel, wrong, numerics=needed(m))
    assert isinstance(found, Failure)
    assert "integers inputs" in found.message


@pytest.mark.parametrize("m", OUTPUTS)
def test_any_single_term_of_few_that_is_lost_shows_behind_a_smooth_function(m: int) -> None:
    """The sums of normal inputs are so many, and the bound of tiles so wide, that it may not."""

    def sums(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)

    x, w = whole(1, 12, 12, 256), whole(3, 3, 256, 8)
    kernel = Case("smooth", lambda x, w: jnp.tanh(sums(x, w)), (x, w)).kernel
    hidden = {}
    for kind in ("few", "normal"):
        case = References(kernel).case(kind, 0, m)
        (expected,) = case.expected
        assert expected.reference.bound is not None
        image = np.asarray(case.values[0], dtype=np.float64)
        terms = np.abs(image[image != 0])
        exact = np.arctanh(np.clip(expected.reference.value, -1 + 1e-15, 1 - 1e-15))
        off = np.abs(np.tanh(exact - np.median(terms)) - expected.reference.value)
        hidden[kind] = (off <= TOLERANCE["standard"] * expected.reference.bound).mean()
    assert hidden["few"] < 0.01
    assert hidden["normal"] > 0.5


def _convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)


@pytest.mark.parametrize(
    ("before", "gain"),
    (
        (lambda x, b: x - b, 1.0),
        (lambda x, b: (x - b) * b, 1.0),
        (lambda x, b: jnp.where(x > 0, x, 0.125 * x) + b, 1.0),
        (lambda x, b: -jnp.log(x) - b, 1.0),
        (lambda x, b: x + b, 100.0),
    ),
    ids=["subtract", "normalise", "select", "logarithm", "saturate"],
)
def test_sums_of_few_terms_are_spread_whatever_the_image_goes_through(
    before: Callable[[jax.Array, jax.Array], jax.Array], gain: float
) -> None:
    arguments = whole(1, 8, 8, 64), whole(64), whole(3, 3, 64, 8)
    smooth = Case("smooth", lambda x, b, w: jnp.tanh(gain * _convolved(before(x, b), w)), arguments)
    case = References(smooth.kernel).case("few", 0, 4)
    assert case.alike < 0.5
    (expected,) = case.expected
    assert (np.abs(expected.reference.value) < 0.999).mean() > 0.25


@pytest.mark.parametrize(
    ("size", "strides", "spread", "holes"),
    (
        ((9, 9), (1, 1), (1, 1), (1, 1)),
        ((9, 9), (2, 2), (2, 2), (1, 1)),
        ((9, 9), (2, 1), (1, 1), (1, 1)),
        ((3, 9), (1, 1), (2, 1), (1, 1)),
        ((9, 9), (1, 1), (1, 1), (2, 1)),
    ),
)
def test_the_bound_is_wider_where_the_algorithm_applies(
    size: tuple[int, int],
    strides: tuple[int, int],
    spread: tuple[int, int],
    holes: tuple[int, int],
) -> None:
    """One rule says along which axes, for the compute and for the oracle."""

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, strides, ((1, 1), (1, 1)), holes, spread, dimension_numbers=NHWC
        )

    case = Case("window", function, (whole(1, *size, 4), whole(3, 3, 4, 8, seed=1)))
    plain, wide = (References(case.kernel).case("normal", 0, m).expected[0] for m in (0, 4))
    assert plain.reference.bound is not None and wide.reference.bound is not None
    wider = bool((wide.reference.bound > plain.reference.bound).any())
    spaces = winograd_spaces(case.compute, host_target())
    assert wider == bool(spaces)
    for space in spaces:
        assert isinstance(judged(case, space.schedule(space.heuristic())), Verdict)


def test_the_error_relative_to_the_largest_value_is_told() -> None:
    case = windowed(channels=64)
    space = winograd_spaces(case.compute, host_target())[1]
    found = judged(case, space.schedule(space.heuristic()))
    assert isinstance(found, Verdict)
    assert 1e-8 < found.relative_error < 3e-6


@pytest.mark.parametrize("frozen", (True, False))
def test_errors_do_not_grow_with_the_channels(frozen: bool) -> None:
    case = windowed(channels=1024, frozen=frozen)
    for space in winograd_spaces(case.compute, host_target()):
        found = judged(case, space.schedule(space.heuristic()))
        assert isinstance(found, Verdict)
        assert found.relative_error < 3e-6, space.outputs


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bound_is_that_of_rounding_each_step(m: int, layout: str) -> None:
    """A computation in half the digits stays below it, and not far below."""
    case = windowed(layout=layout, images=2, size=(7, 9), channels=16, features=3)
    values = References(case.kernel).case("normal").values
    graph = graph_of(case.kernel)
    box = ((0, 2), *((1, n) for n in graph.result_types[0].shape[1:]))
    oracle = Oracle(graph, values)
    bounds = [of.region(0, box) for of in (oracle, OracleInTiles(oracle, m))]
    plain, wide = (r.bound for r in bounds)
    assert plain is not None and wide is not None
    assert (wide >= plain).all()
    (found,) = interpret(winograd(m)(case.compute), [np.asarray(v) for v in values])
    shape = graph.result_types[0].shape
    off = np.abs(found.reshape(shape)[tuple(slice(*b) for b in box)] - bounds[1].value)
    assert (off <= wide).all()
    # what is compared is the largest over many elements; a bound of the worst case is far above
    assert off.max() >= wide.max() / (1000 if m in LOOSE else 500)
    assert TOLERANCE["standard"] * np.median(wide) < 1e-3 * np.abs(bounds[1].value).max()


@pytest.mark.parametrize("frozen", (True, False))
def test_the_error_of_the_better_points_is_as_small_as_promised(frozen: bool) -> None:
    """At most 3e-6 of the largest output, on ResNet's shapes with their real numbers."""
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((1, 14, 14, 256)), 0).astype(np.float32)
    w = (rng.standard_normal((3, 3, 256, 32)) / 34).astype(np.float32)
    case = Case("C9 with fewer features", _convolved, (x, w))
    if frozen:
        case = Case("frozen", lambda x: _convolved(x, jnp.asarray(w)), (x,))
    padded = np.pad(x[0].astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    taps = [(i, j) for i in range(3) for j in range(3)]
    wanted = sum(padded[i : i + 14, j : j + 14] @ w[i, j].astype(np.float64) for i, j in taps)
    for space in winograd_spaces(case.compute, host_target()):
        built = build(case.compute, space.schedule(space.heuristic()), host_target())
        found = call(load(built), case, serial())[0].reshape(wanted.shape)
        assert np.abs(found - wanted).max() <= 3e-6 * np.abs(wanted).max(), space.outputs


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("pixel", (float("inf"), float("nan"), 1e38))
def test_a_pixel_that_is_not_finite_spoils_more_positions_than_a_plain_convolution(
    m: int, pixel: float
) -> None:
    """A window of three spoils 9, 25, 49 positions, XLA 9: see docs/reference/running.md."""
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((3, 3, 4, 16)) / 3).astype(np.float32)
    most, most_of_xla = 0, 0
    for place in range(7, 7 + m):  # wherever the pixel lies in its tile
        x = rng.standard_normal((1, 20, 20, 4)).astype(np.float32)
        x[..., 1] = 0
        clean = _by_xla(x, w)
        x[0, place, place, 1] = pixel
        case = Case("one pixel", _convolved, (x, w))
        with np.errstate(invalid="ignore"):
            found = call(_of_one_pixel(m), case, serial())[0].reshape(clean.shape)
            most = max(most, _changed(found, clean))
            most_of_xla = max(most_of_xla, _changed(_by_xla(x, w), clean))
    assert (most, most_of_xla) == ((m + 1) ** 2, 9)


@cache
def _of_one_pixel(m: int) -> Loaded:
    """Whatever values the image has: both of its operands are arguments."""
    case = Case("one pixel", _convolved, (whole(1, 20, 20, 4), whole(3, 3, 4, 16)))
    space = of_outputs(case, m)
    return load(build(case.compute, space.schedule(space.heuristic()), host_target()))


def _by_xla(x: Array, w: Array) -> Array:
    return np.asarray(_convolved(jnp.asarray(x), jnp.asarray(w)))


def _changed(found: Array, clean: Array) -> int:
    """Positions at which some feature is another, or undefined."""
    return int((~(abs(found - clean) < 1e-3)).any(axis=-1).sum())

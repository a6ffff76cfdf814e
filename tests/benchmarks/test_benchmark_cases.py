"""The operator cases: what they compute, count, and are called."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks import cases
from benchmarks.cases import ANSOR, CASES, MOBILENET, RESNET, SAME, selected, source
from benchmarks.jax_operations import computed, inputs_of, least_bytes, result_of
from benchmarks.operations import Convolution, Operation, Product
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.ir.flops import flops_of
from tests.support.tree import ROOT

SMALL = Convolution(
    size=(7, 6), inputs=4, outputs=6, window=3, stride=2, padding=1, dilation=2, groups=2
)
TRANSPOSED = Convolution(
    size=(4,), inputs=3, outputs=2, window=4, stride=2, padding=1, transposed=True
)


def test_the_convolutions_are_those_of_resnet18() -> None:
    """And C3, which papers since TVM's have among them, though the network takes no such step."""
    labels = {s.label.split(" +")[0] for s in sites(load("examples/resnet18.py:model"))}
    for name in RESNET.keys() - {"C3"}:
        assert labelled(RESNET[name]) in labels, name
    assert {x for x in labels if x.startswith("conv")} <= set(map(labelled, RESNET.values()))


def labelled(case: Operation) -> str:
    assert isinstance(case, Convolution)
    size = "x".join(map(str, case.size))
    return f"conv2d {size}x{case.inputs}->{case.outputs} k{case.window} s{case.stride}"


def test_a_case_is_a_program_with_its_weights_as_argument_or_constant() -> None:
    plain, frozen = load(source("C11")), load(source("C11_frozen"))
    assert (plain.name, frozen.name) == ("C11", "C11_frozen")
    assert len(plain.graph.arguments) == 2 and len(frozen.graph.arguments) == 1
    assert "hlotune.constant" in sites(frozen)[0].kernel.text
    assert "hlotune.constant" not in sites(plain)[0].kernel.text


def test_both_forms_of_a_case_compute_the_same() -> None:
    function, (weights, x) = cases.factory("GMM2")()
    frozen, (alone,) = cases.factory("GMM2_frozen")()
    expected = np.asarray(jax.jit(function)(weights, x))
    assert expected.shape == (32, 512)
    np.testing.assert_allclose(jax.jit(frozen)(alone), expected, rtol=1e-4, atol=1e-4)


def test_every_case_is_cut_into_one_kernel_of_the_operations_that_it_states() -> None:
    """The two count in different ways: by real taps here, by loads of the compute there."""
    plain = {n: c for n, c in CASES.items() if c.element == "f32" and "_nc" not in n}
    for name, case in plain.items():
        kernel = sites(load(source(name)))[0].kernel
        assert flops_of(compute_of(graph_of(kernel))) == case.flops, name


@pytest.mark.parametrize("case", [SMALL, TRANSPOSED], ids=["dilated", "transposed"])
def test_operations_are_those_that_meet_no_padding_and_no_inserted_zero(case: Convolution) -> None:
    """A convolution of ones gives at each place the number of products that are real."""
    weights, image = (np.ones(shape, np.float32) for shape in case.shapes)
    assert case.flops == 2 * int(np.asarray(computed(case, weights, image)).sum())


@pytest.mark.parametrize("channels", ["last", "first"])
@pytest.mark.parametrize("case", [SMALL, TRANSPOSED], ids=["dilated", "transposed"])
def test_a_gradient_is_that_of_the_forward_form(case: Convolution, channels: str) -> None:
    case = same(case, channels=channels)
    weights, image = inputs_of(case)
    result, pull = jax.vjp(functools.partial(computed, case), weights, image)
    cotangent = np.random.default_rng(1).normal(size=result.shape).astype(np.float32)
    of_weights, of_image = pull(cotangent)
    to_image, to_weights = (same(case, direction=f"{d}_gradient") for d in ("input", "weight"))
    assert to_image.shapes == (weights.shape, cotangent.shape)
    np.testing.assert_allclose(
        computed(to_image, weights, cotangent), of_image, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        computed(to_weights, cotangent, image), of_weights, rtol=1e-4, atol=1e-4
    )
    assert case.flops == to_image.flops == to_weights.flops


def same(case: Convolution, **changes: str) -> Convolution:
    fields = {f: getattr(case, f) for f in case.__dataclass_fields__}
    return Convolution(**{**fields, **changes})


def test_a_transposed_convolution_doubles_its_image_as_frameworks_have_it() -> None:
    assert TRANSPOSED.result_size == (8,) and result_of(TRANSPOSED).shape == (1, 8, 2)


@pytest.mark.parametrize(
    "name", ["C6", "C1D3", "C3D4", "GRP1", "DIL3", "T2D4", "C9_input_gradient"]
)
def test_a_layout_changes_the_order_of_axes_alone(name: str) -> None:
    last = CASES[name]
    assert isinstance(last, Convolution)
    first = CASES[f"{name}_{same(last, channels='first').layout.lower()}"]
    assert first.flops == last.flops and least_bytes(first) == least_bytes(last)
    shape, moved = result_of(last).shape, result_of(first).shape
    assert moved == (shape[0], shape[-1], *shape[1:-1])


def test_bytes_are_those_of_operands_and_result() -> None:
    assert least_bytes(Product(m=2, k=3, n=5)) == 4 * (6 + 15 + 10)
    assert least_bytes(Product(m=2, k=3, n=5, element="bf16")) == 2 * (6 + 15 + 10)
    assert least_bytes(Product(m=2, k=3, n=5, element="int8")) == 6 + 15 + 4 * 10


def test_sums_of_bytes_are_whole() -> None:
    case = Product(m=4, k=300, n=5, element="int8")
    weights, x = inputs_of(case)
    wide = x.astype(np.int64) @ weights.astype(np.int64)
    np.testing.assert_array_equal(computed(case, weights, x), wide)


def test_inputs_are_random_and_the_same_each_time() -> None:
    for name in ("C11", "gemm_512_int8", "gemm_512_bf16"):
        first, second = inputs_of(CASES[name]), inputs_of(CASES[name])
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.unique(a).size > 100


def test_families_are_told_from_the_extents() -> None:
    assert {CASES[n].family for n in MOBILENET} == {"depthwise"}
    assert {CASES[n].family for n in RESNET} == {"conv2d"}
    expected = {"C1D2": "conv1d", "C3D1": "conv3d", "GRP1": "grouped", "DIL1": "dilated"}
    expected |= {"T2D1": "transposed", "C2_input_gradient": "backward", "GMM1": "gemm"}
    assert {n: CASES[n].family for n in expected} == expected


def test_no_two_cases_are_the_same() -> None:
    assert len(set(CASES.values())) == len(CASES)


def test_names_for_cases_that_stand_by_another_are_no_cases() -> None:
    assert not SAME.keys() & CASES.keys()
    assert {*SAME.values(), *(ANSOR.keys() - SAME.keys())} <= CASES.keys()


def test_a_product_is_named_by_its_extents() -> None:
    for name, case in CASES.items():
        if isinstance(case, Product) and name.startswith("gemm") and "x" in name:
            extents = "x".join(map(str, (*case.batch, case.m, case.k, case.n)))
            assert name.split("_")[1] == extents


def test_cases_are_selected_by_name_pattern_and_family() -> None:
    assert selected(["C6", "D*"], ["depthwise"])[:2] == ["D1", "D2"]
    assert selected(["gemm_512*_frozen"]) == [
        "gemm_512_frozen",
        "gemm_512_bf16_frozen",
        "gemm_512_int8_frozen",
    ]
    assert selected(["*"]) == list(CASES)


def test_what_selects_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected cases among C1, .*, got C99, wide$"):
        selected(["C6", "C99"], ["wide"])


def test_an_unknown_case_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"expected one of C1, C2, .*got 'C99'"):
        cases.__getattr__("C99")


def test_what_has_no_weights_has_no_form_with_constants() -> None:
    for name in ("gemm_12x128x64x128", "C6_weight_gradient"):
        with pytest.raises(AttributeError, match=f"got '{name}_frozen'"):
            cases.__getattr__(f"{name}_frozen")


def test_a_case_loads_where_only_hlotune_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "hlotune").symlink_to(ROOT / "hlotune")
    code = f"import hlotune; print(hlotune.load('{ROOT}/benchmarks/cases.py:GMM1').name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.stdout.strip() == "GMM1", found.stderr

"""Normalisation by given statistics, as other frontends write it, goes along with a convolution."""

from pathlib import Path

import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle import evaluate
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.errors import ProgramError
from tests.support.computes import Array, whole
from tests.support.contraction_cases import convolved

EPSILON = float(np.float32(1e-3))
TEXT = """
func.func @main(%x: $X, %w: $W, %scale: $C, %offset: $C, %mean: $C, %variance: $C, %more: $Y)
    -> $Y {
  %sums = stablehlo.convolution(%x, %w) dim_numbers = $NUMBERS,
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : ($X, $W) -> $Y
  %normal = "stablehlo.batch_norm_inference"(%sums, %scale, %offset, %mean, %variance)
    <{epsilon = 1.000000e-03 : f32, feature_index = $CHANNEL : i64}>
    : ($Y, $C, $C, $C, $C) -> $Y
  %sum = stablehlo.add %normal, %more : $Y
  %zero = stablehlo.constant dense<0.0> : $Y
  %result = stablehlo.maximum %sum, %zero : $Y
  return %result : $Y
}"""
LAYOUTS = {"NXYC": ("NXYC", "XYIO"), "NCXY": ("NCXY", "OIXY")}
SIZES = {"N": 2, "X": 6, "Y": 7, "C": 4, "I": 4, "O": 40}
PLAIN = {
    "window_strides": (1, 1), "padding": [(1, 1), (1, 1)], "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1), "feature_group_count": 1, "batch_group_count": 1,
}  # fmt: skip


def shapes(layout: str) -> list[tuple[int, ...]]:
    """The shapes of all arguments, in their order."""
    image, window = LAYOUTS[layout]
    x = tuple(SIZES[c] for c in image)
    w = tuple(3 if c in "XY" else SIZES[c] for c in window)
    y = tuple(SIZES["O"] if c == "C" else SIZES[c] for c in image)
    return [x, w, *[(SIZES["O"],)] * 4, y]


def written(layout: str, kind: str, folder: Path) -> Program:
    x, w, c, *_, y = (f"tensor<{'x'.join(map(str, s))}x{kind}>" for s in shapes(layout))
    numbers = {
        "NXYC": "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
        "NCXY": "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
    }[layout]
    text = TEXT.replace("$NUMBERS", numbers).replace("$CHANNEL", str(layout.index("C")))
    for name, value in (("$X", x), ("$W", w), ("$C", c), ("$Y", y)):
        text = text.replace(name, value)
    (folder / "net.mlir").write_text(text)
    return load(str(folder / "net.mlir"))


def values(layout: str, kind: str) -> list[Array]:
    """Small integers; the variances are above zero."""
    found = [whole(*s, seed=k, largest=1 + k % 3) for k, s in enumerate(shapes(layout))]
    found[5] = abs(found[5]) + 1
    return [v.astype(numpy_dtype(kind)) for v in found]


def defined(layout: str, arguments: list[Array]) -> Array:
    """As StableHLO defines it, in f64."""
    image, window = LAYOUTS[layout]
    x, w, *rest = (np.asarray(v, np.float64) for v in arguments)
    at = [-1 if c == "C" else 1 for c in image]
    scale, offset, mean, variance = (v.reshape(at) for v in rest[:4])
    sums = convolved(x, w, [image, window, image], "XY", PLAIN)
    normal = (sums - mean) / np.sqrt(variance + EPSILON) * scale + offset
    return np.maximum(normal + rest[4], 0)


def whole_site(program: Program) -> Site:
    """The kernel that has all of the program in it."""
    site = sites(program)[0]
    assert site.results == program.graph.results
    return site


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "tolerance"), [("f32", 1e-9), ("f64", 1e-9), ("bf16", 0.02), ("f16", 2e-3)]
)
def test_a_convolution_normalised_with_residual_and_relu_is_one_kernel_that_means_the_same(
    layout: str, kind: str, tolerance: float, tmp_path: Path
) -> None:
    program = written(layout, kind, tmp_path)
    site, arguments = whole_site(program), values(layout, kind)
    places = [program.graph.arguments.index(v) for v in site.arguments]
    assert sorted(places) == list(range(7))
    (found,) = evaluate(graph_of(site.kernel), [arguments[k] for k in places])
    wanted = defined(layout, arguments)
    np.testing.assert_allclose(found.value, wanted, rtol=0, atol=tolerance * wanted.max())


def test_its_kernel_has_code_that_is_right(tmp_path: Path) -> None:
    kernel = whole_site(written("NXYC", "f32", tmp_path)).kernel
    compute = compute_of(graph_of(kernel))
    space = space_of(compute, host_target())
    verdict = verify(kernel, build(compute, space.schedule(space.heuristic()), host_target()))
    assert isinstance(verdict, Verdict), verdict


def test_a_channel_that_never_varies_stays_finite_in_f16(tmp_path: Path) -> None:
    """Its deviation's inverse is 316, which times the scale is more than f16 holds."""
    text = """func.func @main(%x: tensor<2x8xf16>, %a: tensor<8xf16>, %b: tensor<8xf16>,
        %c: tensor<8xf16>, %d: tensor<8xf16>) -> tensor<2x8xf16> {
      %y = "stablehlo.batch_norm_inference"(%x, %a, %b, %c, %d)
        <{epsilon = 1.0e-5 : f32, feature_index = 1 : i64}>
        : (tensor<2x8xf16>, tensor<8xf16>, tensor<8xf16>, tensor<8xf16>, tensor<8xf16>)
        -> tensor<2x8xf16>
      return %y : tensor<2x8xf16> }"""
    (tmp_path / "norm.mlir").write_text(text)
    program = load(str(tmp_path / "norm.mlir"))
    channels = [np.full(8, v, np.float16) for v in (300, 2, 1, 0)]
    (found,) = evaluate(program.graph, [np.ones((2, 8), np.float16), *channels])
    np.testing.assert_array_equal(found.value, 2)


def test_of_sizes_that_are_not_known_it_is_refused_as_all_is(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<?x8xf32>, %c: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = "stablehlo.batch_norm_inference"(%x, %c, %c, %c, %c)
        <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
        : (tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
        -> tensor<?x8xf32>
      return %y : tensor<?x8xf32> }"""
    (tmp_path / "net.mlir").write_text(text)
    with pytest.raises(ProgramError, match="expected a size for each symbolic dimension"):
        load(str(tmp_path / "net.mlir"))

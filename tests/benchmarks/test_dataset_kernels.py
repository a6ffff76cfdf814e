"""The kernels of the dataset: enough of each kind, and none that models are judged by."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import prod

import numpy as np
import pytest

from benchmarks import awkward_cases, dataset_kernels
from benchmarks.awkward_cases import CASES as AWKWARD
from benchmarks.cases import CASES
from benchmarks.dataset_kernels import CONTRACTIONS, GROUPS, KERNELS, ROW_GROUPS, ROWS, source
from benchmarks.fused import Fused
from benchmarks.jax_operations import computed
from benchmarks.operations import Convolution, Operation, Product
from benchmarks.row_functions import Rows
from benchmarks.searching import Operator, operator
from hlotune.measure.machine.targets import TARGETS

OPERATIONS = {name: kernel.operation for name, kernel in CONTRACTIONS.items()}
CONVOLUTIONS = [x for x in OPERATIONS.values() if isinstance(x, Convolution)]
PRODUCTS = [x for x in OPERATIONS.values() if isinstance(x, Product)]


@cache
def operators() -> dict[str, Operator]:
    return {name: operator(name, TARGETS["znver4"], source) for name in CONTRACTIONS}


def extents(operation: Operation) -> Counter[int]:
    """The extents of the mathematics' loops, without those of one iteration."""
    if isinstance(operation, Product):
        loops = [*operation.batch, operation.m, operation.n, operation.k]
    else:
        assert isinstance(operation, Convolution)
        groups, dimensions = operation.groups, len(operation.size)
        channels = groups, operation.inputs // groups, operation.outputs // groups
        to_input = operation.direction == "input_gradient"
        places = operation.size if to_input else operation.result_size
        loops = [operation.batch, *channels, *places, *[operation.window] * dimensions]
    return Counter(extent for extent in loops if extent > 1)


def test_there_are_sixty_kernels_of_one_megaflop_to_five_gigaflop() -> None:
    flops = [of.task.flops for of in operators().values()]
    assert len({of.task.kernel.key for of in operators().values()}) >= 60
    assert min(flops) >= 1e6 and max(flops) <= 5e9
    assert sum(f > 20e6 for f in flops) >= len(flops) / 2


def test_every_form_is_among_them() -> None:
    assert {len(c.size) for c in CONVOLUTIONS} == {1, 2, 3}
    assert {c.direction for c in CONVOLUTIONS} == {"forward", "input_gradient", "weight_gradient"}
    assert {c.channels for c in CONVOLUTIONS} == {"first", "last"}
    families = {x.family for x in OPERATIONS.values()}
    assert families >= {"gemm", "conv2d", "transposed", "depthwise", "grouped", "dilated"}
    assert any(c.stride > 1 and not c.transposed for c in CONVOLUTIONS)
    assert any(c.batch > 1 for c in CONVOLUTIONS)
    assert {len(p.batch) for p in PRODUCTS} == {0, 1, 2}
    assert any(min(p.m, p.n) == 1 for p in PRODUCTS)
    assert {p.swapped for p in PRODUCTS} == {"", "left", "right"}
    assert {k.constant for k in CONTRACTIONS.values()} == {True, False}


def test_no_two_of_a_family_share_more_than_half_of_their_extents() -> None:
    for one, other in combinations(CONTRACTIONS, 2):
        if family(one) == family(other) or group(one) == group(other):
            first, second = extents(OPERATIONS[one]), extents(OPERATIONS[other])
            shared = (first & second).total()
            assert shared <= min(first.total(), second.total()) / 2, (one, other)


def family(name: str) -> str:
    return operators()[name].task.kernel.family


def group(name: str) -> str:
    return name.rpartition("_")[0]


LAYERS: tuple[Operation, ...] = (
    *(
        Product(m=1, k=k, n=n)
        for k, n in ((512, 1000), (25088, 4096), (4096, 4096), (4096, 1000), (1024, 1000))
    ),
    *(
        Convolution(size=(s, s), inputs=i, outputs=o, window=3, padding=1)
        for s, i, o in (
            (224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256),
            (56, 256, 256), (28, 256, 512), (28, 512, 512), (14, 512, 512),
        )
    ),
    Convolution(size=(224, 224), inputs=3, outputs=32, window=3, stride=2, padding=1),
    *(
        Convolution(size=(s, s), inputs=i, outputs=o, window=1)
        for s, i, o in (
            (112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256),
            (14, 256, 512), (14, 512, 512), (7, 512, 1024), (7, 1024, 1024),
        )
    ),
)  # fmt: skip
"""The layers of ResNet-18, VGG and MobileNet that no benchmark has."""


def test_none_has_the_extents_of_a_layer_of_a_network_or_of_a_benchmark() -> None:
    known = [extents(operation) for operation in (*LAYERS, *CASES.values())]
    for name, operation in OPERATIONS.items():
        assert extents(operation) not in known, name


def test_the_arithmetic_is_that_of_the_operation() -> None:
    for name, kernel in CONTRACTIONS.items():
        if not kernel.parts:
            flops = operators()[name].task.flops
            assert flops == pytest.approx(kernel.operation.flops, rel=0.05), name


def test_the_extents_are_those_of_the_arithmetic() -> None:
    """But for taps on padding."""
    for name, operation in OPERATIONS.items():
        dense = 2 * prod(extents(operation).elements()) / spread(operation)
        assert 0.7 <= operation.flops / dense <= 1, name


def spread(operation: Operation) -> int:
    """How many elements with zeros stand for one of the map that the window runs over."""
    if not isinstance(operation, Convolution):
        return 1
    has_zeros = operation.transposed or operation.direction == "input_gradient"
    return int(operation.stride ** len(operation.size)) if has_zeros else 1


def test_they_are_measured_by_turns_of_their_groups() -> None:
    assert list(KERNELS) == [*CONTRACTIONS, *ROWS]
    for found, groups in ((CONTRACTIONS, GROUPS), (ROWS, ROW_GROUPS)):
        names = list(found)
        assert [group(name) for name in names[: len(groups)]] == list(groups)
        assert sorted(map(group, names)) == sorted(g for g, cases in groups.items() for _ in cases)


def test_there_are_forty_kernels_without_a_contraction_each_one_kernel_of_one_program() -> None:
    found = [operator(name, TARGETS["znver4"], source) for name in ROWS]
    assert len({of.task.kernel.key for of in found}) == len(ROWS)
    assert sum(of.task.space.pattern == "rows" for of in found) >= 40
    assert len({of.task.kernel.family for of in found}) >= 25
    assert min(of.task.bytes for of in found) >= 300_000


def test_an_awkward_case_is_no_kernel_of_the_dataset() -> None:
    rows = {max(case.shapes) for case in AWKWARD.values() if isinstance(case, Rows)}
    assert not rows & {max(case.shapes) for case in ROWS.values()}
    contractions = [case.operation for case in AWKWARD.values() if isinstance(case, Fused)]
    known = [extents(operation) for operation in OPERATIONS.values()]
    assert all(extents(operation) not in known for operation in contractions)


def test_an_unknown_awkward_case_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"expected one of conv2d_26x26x160, .*got 'conv'"):
        awkward_cases.__getattr__("conv")


def test_constants_are_marked_and_arguments_are_not() -> None:
    for name, kernel in CONTRACTIONS.items():
        assert ("hlotune.constant" in operators()[name].task.kernel.text) == kernel.constant, name


def test_an_epilogue_takes_its_operands_in_order() -> None:
    of = Fused(Product(m=2, k=3, n=4), "scale+bias+relu")
    weights, scale, bias, x = (np.full(shape, 2.0, np.float32) for shape in of.shapes)
    assert of.parameters == 3
    y = np.asarray(of(weights, scale * 3, -bias, x))
    np.testing.assert_array_equal(y, np.full((2, 4), 12 * 6 - 2.0))


def test_a_bias_is_added_along_the_channels_and_a_residual_everywhere() -> None:
    image = Convolution(size=(4, 5), inputs=2, outputs=3, window=1, channels="first")
    of = Fused(image, "bias+residual+relu")
    weights, bias, x, residual = of.inputs()
    expected = np.einsum("oc,ncyx->noyx", weights[:, :, 0, 0], x) + bias[None] + residual
    np.testing.assert_allclose(of(weights, bias, x, residual), np.maximum(expected, 0), atol=1e-5)


def test_a_swapped_side_is_the_transposed_matrix() -> None:
    plain, rng = Product(m=3, k=4, n=5, batch=(2,)), np.random.default_rng(0)
    weights, x = (rng.normal(size=s).astype(np.float32) for s in plain.shapes)
    expected = np.asarray(computed(plain, weights, x))
    for left, right in ((x.swapaxes(1, 2), weights), (x, weights.swapaxes(1, 2))):
        swapped = replace(plain, swapped="left" if right is weights else "right")
        assert swapped.shapes == (right.shape, left.shape)
        np.testing.assert_allclose(computed(swapped, right, left), expected, atol=1e-5)


def test_images_of_a_batch_are_convolved_alike() -> None:
    one = Convolution(size=(5, 4), inputs=2, outputs=3, window=3, padding=1)
    two, rng = replace(one, batch=2), np.random.default_rng(0)
    weights, images = (rng.normal(size=s).astype(np.float32) for s in two.shapes)
    each = [np.asarray(computed(one, weights, images[n : n + 1]))[0] for n in range(2)]
    np.testing.assert_allclose(computed(two, weights, images), each, atol=1e-5)
    assert two.flops == 2 * one.flops


def test_an_unknown_kernel_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"expected one of gemm, .*got 'gemm_99'"):
        dataset_kernels.__getattr__("gemm_99")

"""Libraries among the peers compute what an operation says, in any layout, or refuse it."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from benchmarks.jax_operations import computed, inputs_of
from benchmarks.operations import Convolution, Operation, Product
from benchmarks.peers import rounds
from benchmarks.peers.worker import Library, Unsupported
from benchmarks.peers.xla import Xla
from tests.benchmarks.test_peers import TOY

FORWARD = Convolution(size=(7, 6), inputs=4, outputs=6, window=3, stride=2, padding=1)
DILATED = replace(FORWARD, dilation=2, groups=2, padding=2)
TRANSPOSED = replace(FORWARD, window=4, transposed=True)
OPERATIONS: dict[str, Operation] = {
    "product": TOY,
    "batched": Product(batch=(3,), m=6, k=5, n=4),
    "forward": FORWARD,
    "dilated": DILATED,
    "transposed": TRANSPOSED,
    "input_gradient": replace(FORWARD, direction="input_gradient"),
    "weight_gradient": replace(FORWARD, direction="weight_gradient"),
    "conv1d": replace(FORWARD, size=(9,)),
    "conv3d": replace(FORWARD, size=(5, 6, 7)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", OPERATIONS)
def test_pytorch_computes_the_same(name: str) -> None:
    agrees(pytorch(), OPERATIONS[name], "eager")


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n, x in OPERATIONS.items() if isinstance(x, Convolution)])
def test_pytorch_computes_the_same_with_the_channels_first(name: str) -> None:
    """And with it the layouts that all the others take."""
    operation = cast(Convolution, OPERATIONS[name])
    agrees(pytorch(), replace(operation, channels="first"), "eager")


@pytest.mark.parametrize("form", ["arguments", "constants"])
@pytest.mark.parametrize("element", ["f32", "bf16", "int8"])
def test_xla_computes_the_same_in_both_forms(form: str, element: str) -> None:
    agrees(Xla(), replace(TOY, element=element), form)  # type: ignore[arg-type]


def pytorch() -> Library:
    from benchmarks.peers.pytorch import PyTorch

    return PyTorch()


def agrees(library: Library, operation: Operation, form: str) -> None:
    weights, x = inputs_of(operation)
    made = library.prepare("toy", operation, form, weights, x)
    made.call()
    expected = np.asarray(computed(operation, weights, x))
    assert not rounds.wrong(operation, {"jax": expected, "library": made.result()})


@pytest.mark.torch
def test_a_linear_layer_computes_the_same_product() -> None:
    agrees(pytorch(), TOY, "linear")
    with pytest.raises(Unsupported, match="only products of floating numbers"):
        pytorch().prepare("toy", FORWARD, "linear", *inputs_of(FORWARD))


@pytest.mark.torch
def test_pytorch_says_what_it_has_not() -> None:
    operation = replace(FORWARD, element="int8")
    with pytest.raises(Unsupported, match="no convolution of bytes"):
        pytorch().prepare("toy", operation, "eager", *inputs_of(operation))

"""The examples compute what they say, on numbers of order one."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from examples import convnet, mlp, resnet18


@pytest.mark.parametrize(
    ("factory", "shape"),
    [(mlp.model, (64, 10)), (convnet.model, (1, 10)), (resnet18.model, (1, 1000))],
    ids=["mlp", "convnet", "resnet18"],
)
def test_outputs_have_their_shape_and_are_of_order_one(
    factory: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    function, arguments = factory()
    logits = np.asarray(jax.jit(function)(*arguments))
    assert logits.shape == shape and logits.dtype == np.float32
    assert 0.1 < logits.std() < 10


def test_resnet18_has_the_parameters_of_the_paper() -> None:
    params = resnet18.parameters(np.random.default_rng(0))
    learned = [v for layer in params.values() for k, v in layer.items() if k not in STATISTICS]
    assert sum(v.size for v in learned) == 11_689_512


STATISTICS = ("mean", "variance")


def test_frozen_resnet18_takes_the_image_alone_and_agrees_with_the_other() -> None:
    function, arguments = resnet18.model()
    frozen, (image,) = resnet18.frozen()
    expected = jax.jit(function)(*arguments)
    np.testing.assert_allclose(jax.jit(frozen)(image), expected, rtol=1e-3, atol=1e-3)

"""What `tune kernels` says of the work of a kernel."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlotune.cli.kernel_limits import schedules_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites

X = np.ones((128, 256), np.float32)


def flops(function: Any) -> int | None:
    """The operations of the largest kernel of a function of X; None where nobody can count them."""
    return schedules_of(sites(load(function, X))[0].kernel).flops


def test_a_kernel_that_only_moves_data_has_no_work() -> None:
    assert flops(lambda x: x.T) == 0


def test_work_of_parts_beside_one_another_is_unknown_and_never_nothing() -> None:
    """Rolled arrays are two parts each, and no point is in all parts of all of them."""
    assert flops(lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1)) is None


def test_work_of_a_product_is_counted() -> None:
    assert flops(lambda x: x @ x.T) == 2 * 128 * 128 * 256

"""Functions that kernels for GPUs and TPUs have of their own."""

import jax.numpy as jnp
import numpy as np
from scipy.special import erfc

from hlotune.codegen.pallas.elements import activated


def test_the_gaussian_unit_is_right_relative_to_itself_far_out() -> None:
    x = np.linspace(-8.0, 8.0, 4001).astype(np.float32)
    wanted = 0.5 * x.astype(np.float64) * erfc(-x.astype(np.float64) / np.sqrt(2))
    off = np.abs(np.asarray(activated(jnp.asarray(x), "bias_gelu")) - wanted)
    assert (off <= 2e-5 * np.abs(wanted)).all()

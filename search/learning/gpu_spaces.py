"""Spaces of GPUs and TPUs whose guesses at times are corrected by what was learned."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.gpu_guesses import factors, key, shipped
from hlotune.schedules.errors import ModelError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu import features
from hlotune.schedules.spaces.gpu.searched import SearchedSpace, searched_space
from hlotune.schedules.spaces.gpu.space import Configs, GpuSpace
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.target import Target

KEY = key(features.VERSION, features.NAMES)


def guessed_space(
    compute: Compute, target: Target, numerics: Numerics = "standard"
) -> SearchedSpace:
    """`searched_space`, with guesses that were learned where they were, for kinds of kernel that
    devices measured.

    Raises UnsupportedKernel where the target has no schedules for the compute.
    """
    space = searched_space(compute, target, numerics)
    if not isinstance(target, GpuTarget) or isinstance(space.kernel, GpuStages):
        return space
    return replace(space, blocks=corrected(space.kernel, gpu_space(space.kernel, target)))


def corrected(kernel: AnyGpuKernel, space: GpuSpace) -> GpuSpace:
    """The space, its guesses corrected by the shipped trees unless they read other features."""
    try:
        trees = shipped(KEY)
    except ModelError:
        return space

    def factor(configs: Configs) -> NDArray[np.float64]:
        return factors(trees, features.features(kernel, space, configs))

    return replace(space, correction=factor)

"""Pallas's own names for Hopper, untyped: they move with each release of JAX."""

import importlib
from typing import Any

mosaic: Any = importlib.import_module("jax.experimental.pallas.mosaic_gpu")
"""What JAX means by `jax.experimental.pallas.mosaic_gpu`."""

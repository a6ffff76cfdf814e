"""XLA's side, the default that hlotune is held against: `jax.jit` of the same function."""

from collections.abc import Callable
from importlib.metadata import version

import jax
import numpy as np

from benchmarks.jax_operations import TYPES, computed
from benchmarks.operations import Array, Operation
from benchmarks.peers.worker import Prepared, serve


class Xla:
    version = version("jaxlib")

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        w, y = placed(operation, weights), placed(operation, x)
        if form == "constants":
            return prepared(jax.jit(lambda x: computed(operation, w, x)), (y,))
        return prepared(jax.jit(lambda w, x: computed(operation, w, x)), (w, y))


def placed(operation: Operation, array: Array) -> jax.Array:
    found: jax.Array = jax.device_put(array.astype(TYPES[operation.element]))
    return found


def prepared(function: Callable[..., jax.Array], arguments: tuple[jax.Array, ...]) -> Prepared:
    def result() -> Array:
        found: Array = np.asarray(function(*arguments))
        return found.astype(np.float32) if found.dtype != np.int32 else found

    return Prepared(lambda: function(*arguments).block_until_ready(), result)


if __name__ == "__main__":
    serve(Xla())

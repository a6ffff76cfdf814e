"""The six networks that the peers run, as functions of JAX with their weights and their input."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.models.files import CHANNELS_FIRST, INPUTS, WEIGHTS
from examples import bert_base, mlp, mobilenet, resnet, vgg19
from examples.layers import image

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Network:
    """A network; its example binds the same weights as constants, and has the same input."""

    forward: Callable[..., Any]
    weights: Callable[[], Any]
    x: Callable[[], Array]


def _image() -> Array:
    return image(1, 224)


NETWORKS: Mapping[str, Network] = {
    "resnet18": Network(resnet.forward, lambda: resnet.parameters(18), _image),
    "resnet50": Network(resnet.forward, lambda: resnet.parameters(50), _image),
    "vgg19": Network(vgg19.forward, vgg19.parameters, _image),
    "mobilenet": Network(mobilenet.forward, mobilenet.parameters, _image),
    "bert_base": Network(
        bert_base.forward,
        lambda: bert_base.model()[1][0],
        lambda: np.asarray(bert_base.model()[1][1]),
    ),
    "mlp": Network(mlp.forward, mlp.served, mlp.thousand),
}


def write(name: str, folder: Path) -> None:
    """Writes the weights of a network and its input in both layouts, unless they are there."""
    if (folder / WEIGHTS).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    network = NETWORKS[name]
    x = network.x()
    np.savez(folder / INPUTS, np.ascontiguousarray(x))
    first = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    np.savez(folder / CHANNELS_FIRST, np.ascontiguousarray(first))
    part = folder / f"part.{WEIGHTS}"
    np.savez(part, **named(network.weights()))  # type: ignore[arg-type]
    part.replace(folder / WEIGHTS)


def named(weights: Any) -> dict[str, Array]:
    """The arrays of a tree by their paths: `blocks/0.0/units/1/conv/bias`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(weights)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(x) for path, x in leaves
    }

"""The model that a search starts with: the trained one of this package, another file, or none."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hlotune.costmodel.files import Training, header_of
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.roofline_guided import Guided
from hlotune.schedules.errors import ModelError

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Start:
    """A model at the start of a run."""

    model: CostModel
    words: str
    """What it knows and where from, for people."""
    digest: str | None
    """The digest of the file that it was loaded from."""


def shipped(name: str) -> Path | None:
    """The trained model of this name that comes with the package, if there is one."""
    path = FOLDER / f"{name}.npz"
    return path if path.exists() else None


def start(name: str, file: Path | None = None) -> Start:
    """A model of `MODELS`, loaded from a file, by default the shipped one.

    A shipped model of other features than today's is left alone, and so said.  Raises ModelError
    where there is no such model, or a file that was asked for does not hold it.
    """
    if name not in MODELS:
        raise ModelError(f"expected a model among {', '.join(MODELS)}, got {name}; take one")
    model, path = MODELS[name](), file or shipped(name)
    if path is None:
        return untrained(name, "")
    try:
        model.load(path)
        seen = header_of(path).training
    except ModelError:
        if file is not None:
            raise
        return untrained(name, ": the shipped one is of other features")
    return Start(model, f"{name}, {_trained(seen)}", hashlib.sha256(path.read_bytes()).hexdigest())


def untrained(name: str, why: str) -> Start:
    """A model that learns during the run alone; trees have a roofline beside them."""
    model = MODELS[name]()
    if name == "trees":
        return Start(Guided(model), f"{name} beside a roofline, untrained{why}", None)
    return Start(model, name if model.knows and not why else f"{name}, untrained{why}", None)


def _trained(seen: Training | None) -> str:
    if seen is None:
        return "trained"
    kernels = len(seen.kernels)
    return f"trained on {seen.trials} trials of {kernels} kernel{'' if kernels == 1 else 's'}"

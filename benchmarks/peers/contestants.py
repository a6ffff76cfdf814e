"""The libraries that take part, their forms, and the rows of the table that a form counts for."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Weights = Literal["arguments", "constants"]
"""Whether the weights of a case come with each call, or are known beforehand."""

Forms = Mapping[str, tuple[Weights, ...]]
PACKAGE = "benchmarks.peers"
FOLDER = Path("build/peers")
OLDEST = Path(".venv-oldest")
"""The environment of `make setup-oldest`, which has PyTorch."""
DEFAULT, OURS = "xla", "hlotune"
REQUIRED = ("onnxruntime", "openvino", "pytorch")
"""The libraries that a user would take: without one of them a table says little."""

BOTH: tuple[Weights, ...] = ("arguments", "constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A library: the module of its side, and the environment that it is installed in."""

    name: str
    module: str
    environment: Path | None = None
    """Its folder; without one, it is the environment of this process."""
    forms: Forms
    """Each with the rows that it counts for."""
    options: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        if self.environment is None:
            return Path(sys.executable)
        return self.environment.absolute() / "bin" / "python"

    @property
    def command(self) -> list[str]:
        return [str(self.python), "-m", self.module, *self.options]


_ITS_OWN: Forms = {"arguments": ("arguments",), "constants": ("constants",)}
_BETTER: Forms = {"arguments": BOTH, "constants": ("constants",)}
"""Forms for a library that knows weights beforehand, and is faster with weights as arguments."""


def contestants(database: Path, cache: str = "model") -> tuple[Contestant, ...]:
    """The default first, then hlotune with the records of a database, then the others.

    Of the records, those that were tuned in a cache mode count.

    The default counts in its better form for all rows, and so do the others where weights are
    constants; hlotune counts by the form of the row alone.
    """
    torch: Forms = {"eager": BOTH, **_BETTER, "linear": ("constants",)}
    vino: Forms = {**_BETTER, **{f"{form}_nchw": rows for form, rows in _BETTER.items()}}
    return (
        _module(DEFAULT, "xla", {"arguments": BOTH, "constants": BOTH}),
        _module(OURS, "ours", _ITS_OWN, str(database), cache),
        _in_environment("pytorch", "pytorch", torch, OLDEST),
        _in_environment("onnxruntime", "onnx_runtime", _BETTER, FOLDER / "onnxruntime"),
        _in_environment("openvino", "open_vino", vino, FOLDER / "openvino"),
        _in_environment("tvm", "meta_schedule", {"arguments": BOTH}, FOLDER / "tvm"),
    )


def _module(name: str, module: str, forms: Forms, *options: str) -> Contestant:
    return Contestant(name=name, module=f"{PACKAGE}.{module}", forms=forms, options=options)


def _in_environment(name: str, module: str, forms: Forms, folder: Path) -> Contestant:
    return Contestant(name=name, module=f"{PACKAGE}.{module}", forms=forms, environment=folder)

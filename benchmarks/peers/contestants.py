"""Who takes part, in which forms, and for which rows of the table each form counts."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Weights = Literal["arguments", "constants"]
"""Whether the weights of a case come with each call, or are known beforehand."""

FOLDER = Path("build/peers")
DEFAULT, OURS = "xla", "hlotune"
REQUIRED = ("onnxruntime", "openvino", "pytorch")
"""Without one of these a table says little: these are what a user would take."""

BOTH: tuple[Weights, ...] = ("arguments", "constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A library: the module of its side, and the environment that it is installed in."""

    name: str
    module: str
    environment: str = ""
    """A folder of `build/peers`; without, it is the one of this process."""
    forms: Mapping[str, tuple[Weights, ...]]
    """Each with the rows that it counts for."""
    options: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        if not self.environment:
            return Path(sys.executable)
        return FOLDER.resolve() / self.environment / "bin" / "python"

    @property
    def command(self) -> list[str]:
        return [str(self.python), "-m", self.module, *self.options]


_AS_GIVEN: dict[str, tuple[Weights, ...]] = {
    "arguments": ("arguments",),
    "constants": ("constants",),
}


def contestants(database: Path) -> tuple[Contestant, ...]:
    """The default first, then hlotune with the records of a database, then the others.

    The default counts in its better form for all rows.  Eager PyTorch does not know whether its
    weights will change.
    """
    return (
        Contestant(
            name=DEFAULT,
            module="benchmarks.peers.xla",
            forms={"arguments": BOTH, "constants": BOTH},
        ),
        Contestant(
            name=OURS,
            module="benchmarks.peers.ours",
            forms=_AS_GIVEN,
            options=(str(database),),
        ),
        Contestant(
            name="pytorch",
            module="benchmarks.peers.pytorch",
            forms={"eager": BOTH, **_AS_GIVEN, "linear": ("constants",)},
        ),
        Contestant(
            name="onnxruntime",
            module="benchmarks.peers.onnx_runtime",
            environment="onnxruntime",
            forms=_AS_GIVEN,
        ),
        Contestant(
            name="openvino",
            module="benchmarks.peers.open_vino",
            environment="openvino",
            forms=_AS_GIVEN,
        ),
        Contestant(
            name="tvm",
            module="benchmarks.peers.meta_schedule",
            environment="tvm",
            forms={"arguments": ("arguments",)},
        ),
    )

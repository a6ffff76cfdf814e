"""Who takes part: XLA and hlotune in one process, then the runtimes that a user would take."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models.files import CHANNELS_FIRST, INPUTS, ONNX
from benchmarks.peers.contestants import FOLDER as PEERS
from benchmarks.peers.contestants import OLDEST, Contestant, Forms

XLA, ARGUMENTS, OPTIONS, OURS = "ours xla", "ours arguments", "ours options", "ours tuned"
"""Labels of entries; all others are peers."""
NUDGED = "ours nudged"
"""XLA with inputs that are moved by one rounding: not timed, but what others are held against."""
_MODEL: Forms = {"model": ("constants",)}
_OURS: Forms = {
    "xla": ("constants",),
    "arguments": ("arguments",),
    "options": ("constants",),
    "tuned": ("constants",),
    "nudged": ("constants",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A runtime: what the tables call it, what it reads, and in which layout it takes images."""

    title: str
    contestant: Contestant
    format: str = ""
    """A row of `MAKERS`; nothing where it reads the weights themselves."""
    inputs: str = CHANNELS_FIRST

    @property
    def label(self) -> str:
        return f"{self.contestant.name} model"

    @property
    def reads(self) -> str:
        """The file that it is given; a folder of files where there is no name."""
        return ONNX if self.format == "onnx" else ""


def _peer(
    title: str, module: str, environment: Path, *options: str, form: str = "", inputs: str = ""
) -> Peer:
    name = environment.name if environment != OLDEST else "pytorch"
    contestant = Contestant(
        name=name, module=module, environment=environment, forms=_MODEL, options=options
    )
    return Peer(title=title, contestant=contestant, format=form, inputs=inputs or CHANNELS_FIRST)


_HERE, _KERNELS = "benchmarks.models.peer_", "benchmarks.kernels.peer_"
OURSELVES = Contestant(name="ours", module=_HERE + "ours", forms=_OURS)
PEERS_OF_MODELS: tuple[Peer, ...] = (
    _peer("torch.compile", _HERE + "torch", OLDEST),
    _peer("ONNX Runtime", _KERNELS + "onnx_runtime", PEERS / "onnxruntime", form="onnx"),
    _peer("OpenVINO", _KERNELS + "open_vino", PEERS / "openvino", form="onnx"),
    _peer("ncnn", _HERE + "ncnn", PEERS / "ncnn", form="ncnn"),
    _peer("MNN", _HERE + "mnn", PEERS / "mnn", form="mnn"),
    _peer("LiteRT", _HERE + "litert", PEERS / "litert", form="tflite", inputs=INPUTS),
    _peer("zentorch", _HERE + "torch", PEERS / "zentorch", "zentorch"),
)
TITLES: Mapping[str, str] = {
    XLA: "XLA, weights as constants", ARGUMENTS: "XLA, weights as arguments",
    OPTIONS: "XLA, best options",
    **{peer.label: peer.title for peer in PEERS_OF_MODELS}, OURS: "hlotune",
}  # fmt: skip
"""The entries by label, in the order of the tables."""

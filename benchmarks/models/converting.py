"""Makes the file that a runtime reads of a network, once: what is there is not made again.

    python -m benchmarks.models.converting FORMAT NAME FOLDER

It runs in the environment that `formats.py` names.  PyTorch writes ONNX and TorchScript, of which
the converters of MNN and ncnn make their own files; LiteRT's converter takes the module itself,
with the channels of images last.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.command import command
from benchmarks.models.files import (
    CHANNELS_FIRST,
    MNN,
    NCNN,
    NCNN_WEIGHTS,
    ONNX,
    SCRIPT,
    TFLITE,
    WEIGHTS,
)


def main() -> None:
    form, name, folder = sys.argv[1:]
    WRITERS[form](name, Path(folder))


def onnx(name: str, folder: Path) -> None:
    import torch

    part = folder / f"part.{ONNX}"
    torch.onnx.export(
        *_module(name, folder), str(part), input_names=["x0"], opset_version=17, dynamo=False
    )  # fmt: skip
    part.replace(folder / ONNX)


def script(name: str, folder: Path) -> None:
    import torch

    traced = torch.jit.trace(*_module(name, folder), check_trace=False)  # type: ignore[no-untyped-call]
    traced.save(str(folder / SCRIPT))


def ncnn(name: str, folder: Path) -> None:
    """Weights stay f32; what the converter leaves beside its files is removed."""
    import numpy as np

    with np.load(folder / CHANNELS_FIRST) as file:
        shape = ",".join(map(str, file["arr_0"].shape))
    spec = importlib.util.find_spec("pnnx")
    assert spec is not None and spec.origin is not None
    program = next(p for p in Path(spec.origin).parent.rglob("pnnx") if p.is_file())
    part = folder / f"part.{NCNN}"
    subprocess.run(
        [str(program), str(folder / SCRIPT), f"inputshape=[{shape}]", "fp16=0",
         f"ncnnparam={part}", f"ncnnbin={folder / NCNN_WEIGHTS}"],
        check=True,
    )  # fmt: skip
    for pattern in (SCRIPT, "model.pnnx*", "model_*.py"):
        for left in folder.glob(pattern):
            left.unlink()
    part.replace(folder / NCNN)


def mnn(name: str, folder: Path) -> None:
    """By the module behind `mnnconvert`: that command and `MNN.tools` install a package by pip and
    report to a server."""
    import _tools

    part = folder / f"part.{MNN}"
    _tools.mnnconvert(
        ["mnnconvert", "-f", "ONNX", "--modelFile", str(folder / ONNX), "--MNNModel", str(part),
         "--bizCode", "hlotune"]
    )  # fmt: skip
    part.replace(folder / MNN)


def tflite(name: str, folder: Path) -> None:
    import litert_torch

    module, x = _module(name, folder)
    if x.ndim == 4:
        module, x = litert_torch.to_channel_last_io(module, args=[0]), x.permute(0, 2, 3, 1)
    part = folder / f"part.{TFLITE}"
    litert_torch.convert(module, (x.contiguous(),)).export(str(part))
    part.replace(folder / TFLITE)


def _module(name: str, folder: Path) -> tuple[Any, Any]:
    """The network as a module of PyTorch, and its input."""
    import numpy as np
    import torch

    from benchmarks.models.torch_networks import network

    with np.load(folder / CHANNELS_FIRST) as file:
        x = torch.from_numpy(file["arr_0"])
    return network(name, folder / WEIGHTS), x


WRITERS: Mapping[str, Callable[[str, Path], None]] = {
    "onnx": onnx, "script": script, "ncnn": ncnn, "mnn": mnn, "tflite": tflite,
}  # fmt: skip

if __name__ == "__main__":
    command(main)

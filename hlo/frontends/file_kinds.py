"""Which files and folders are programs, and what is said of those that are not."""

import re
from pathlib import Path, PurePath

from hlotune.schedules.errors import ProgramError

ONNX = ".onnx"
PYTORCH = ".pt2"
FILES = (".mlir", ".mlirbc", ".bc", ".stablehlo", ".hlo", ".pb", ".txt", ONNX, PYTORCH)
"""Suffixes of files of StableHLO, HLO, ONNX and PyTorch, in lower case; a suffix may be written in
any case."""
MODELS = {
    ".pt": "a PyTorch model",
    ".pth": "a PyTorch model",
    ".keras": "a Keras model",
    ".h5": "a Keras model",
    ".tflite": "a TensorFlow Lite model",
    ".mlpackage": "a Core ML model",
    ".mlmodel": "a Core ML model",
    ".engine": "a TensorRT engine",
    ".xml": "an OpenVINO model",
}
"""Models that hlotune does not read, by suffix."""
PICKLED = (".pt", ".pth")
"""Suffixes of PyTorch's own files, pickled models mostly: what torch.export saves is read."""
WEIGHTS = {
    ".safetensors": "weights in safetensors",
    ".npz": "arrays of NumPy",
    ".npy": "an array of NumPy",
    ".gguf": "weights in GGUF",
    ".ckpt": "a checkpoint",
    ".msgpack": "weights of Flax",
    ".orbax": "a checkpoint of Orbax",
}
"""Values without a program that uses them, by suffix."""
SAVED_MODEL = "saved_model.pb"
"""The file that makes a folder a SavedModel of TensorFlow."""
_HLO_TEXT = re.compile(
    rb"(\s|//[^\n]*\n|/\*.*?\*/)*(HloModule\b|(?!module\b)(ENTRY\s+)?%?[\w.\-]+\s+(\([^{]*\)\s*->[^{]*)?\{)",
    re.DOTALL,
)
"""The line of a module, or the first computation where there is none."""
HLO_TEXT = "HLO text that begins with HloModule or with a computation"
_MLIR = re.compile(
    rb"ML\xefR|(\s|//[^\n]*\n)*(module\s+(@|attributes\b)|(module\s*\{\s*)?func\.func\b|#\w+\s*=)"
)
"""The beginning of MLIR's bytecode, and of its text: a module, a function or a definition."""
_LOOKED_AT_BYTES = 1 << 16


def suffix_of(path: PurePath) -> str:
    """The suffix in lower case."""
    return path.suffix.lower()


def names_a_file(text: str) -> bool:
    """Whether a source is the path of a file or folder, there or not, and no function in one."""
    path = Path(text)
    if suffix_of(path) in (*FILES, *MODELS, *WEIGHTS):
        return True
    return text != "" and ":" not in text and path.suffix != ".py" and path.exists()


def is_hlo_text(data: bytes) -> bool:
    """Whether a file begins as HLO's text form does, behind comments."""
    return _HLO_TEXT.match(data[:_LOOKED_AT_BYTES]) is not None


def is_mlir(data: bytes) -> bool:
    """Whether a file begins as StableHLO does, as bytecode or as text behind comments."""
    return _MLIR.match(data[:_LOOKED_AT_BYTES]) is not None


def check_kind(path: Path) -> None:
    """Raises ProgramError for a path that names a model of another kind, weights, or a folder."""
    suffix = suffix_of(path)
    if path.name == SAVED_MODEL or (path / SAVED_MODEL).is_file():
        raise _refused(path, "a SavedModel of TensorFlow", _EXPORT)
    if suffix in MODELS:
        raise _refused(path, MODELS[suffix], _PICKLED if suffix in PICKLED else _EXPORT)
    if suffix in WEIGHTS:
        raise _refused(path, WEIGHTS[suffix], "name the program that uses these values")
    if path.is_dir():
        raise _refused(path, "a folder", _FOLDER)


_FOLDER = (
    "name the file in it; `tune run` also takes a folder that XLA has dumped its modules into "
    "(XLA_FLAGS=--xla_dump_to=FOLDER)"
)
_EXPORT = "hlotune does not read it: export the model to StableHLO or ONNX first"
_PICKLED = (
    "hlotune does not read what is pickled: export the model by torch.export, and save it with "
    f"torch.export.save in a file {PYTORCH}"
)


def _refused(path: Path, what: str, advice: str) -> ProgramError:
    return ProgramError(
        f"expected StableHLO, HLO, ONNX or an export of PyTorch in a file {' '.join(FILES)}, got "
        f"{path}, {what}; {advice}"
    )

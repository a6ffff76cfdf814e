"""Which environment makes which file of a network, and of what: our side of `converting.py`."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models.files import MNN, NCNN, ONNX, SCRIPT, TFLITE
from benchmarks.peers.contestants import FOLDER as PEERS
from benchmarks.peers.contestants import OLDEST
from benchmarks.peers.process import environment

LIMIT_S = 400.0


@dataclass(frozen=True, slots=True)
class Maker:
    """How a format comes into being: the environment, the file, and the format it is made of."""

    environment: Path
    file: str
    of: str = ""


MAKERS: Mapping[str, Maker] = {
    "onnx": Maker(OLDEST, ONNX),
    "script": Maker(OLDEST, SCRIPT),
    "ncnn": Maker(PEERS / "ncnn", NCNN, of="script"),
    "mnn": Maker(PEERS / "mnn", MNN, of="onnx"),
    "tflite": Maker(PEERS / "litert", TFLITE),
}


def made(form: str, name: str, folder: Path) -> str:
    """Makes the file in its environment; says why there is none, in one line, else nothing."""
    maker = MAKERS[form]
    if (folder / maker.file).exists():
        return ""
    if maker.of and (failed := made(maker.of, name, folder)):
        return failed
    python = maker.environment.absolute() / "bin" / "python"
    if not python.exists():
        return f"no environment at {maker.environment}"
    command = [str(python), "-m", "benchmarks.models.converting", form, name, str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment(2)
        )
    except subprocess.TimeoutExpired:
        return f"no {maker.file} within {LIMIT_S:g} s"
    (folder / f"{form}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode == 0 and (folder / maker.file).exists():
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return f"no {maker.file}: {lines[-1][:200] if lines else 'its converter said nothing'}"

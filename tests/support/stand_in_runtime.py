"""A package `onnxruntime` for tests, which runs models by ONNX's reference implementation."""

import sys
from pathlib import Path

import pytest

SOURCE = """
import os
import time

from onnx.reference import ReferenceEvaluator


class SessionOptions:
    pass


class Named:
    def __init__(self, name):
        self.name = name


class InferenceSession:
    def __init__(self, path, options, providers):
        fault = "{fault}"
        if fault == "ends":
            print("the last words")
            os._exit(9)
        if fault == "refuses":
            raise NotImplementedError("no kernel of Exotic")
        if fault == "hangs":
            time.sleep(60)
        self.evaluator, self.wrong = ReferenceEvaluator(path), fault == "is wrong"

    def get_inputs(self):
        return [Named(name) for name in self.evaluator.input_names]

    def run(self, names, given):
        results = self.evaluator.run(names, given)
        return [x + 1 for x in results] if self.wrong else results
"""


def install(folder: Path, patch: pytest.MonkeyPatch, fault: str = "") -> None:
    """Puts the package in front of an installed one, for this process and those that it starts.

    `fault` is "ends", "refuses", "hangs" or "is wrong", where it has one.
    """
    (folder / "onnxruntime.py").write_text(SOURCE.replace("{fault}", fault))
    about = folder / "onnxruntime-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 0.0.1\n")
    patch.syspath_prepend(str(folder))
    sys.modules.pop("onnxruntime", None)

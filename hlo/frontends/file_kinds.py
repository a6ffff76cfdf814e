"""Which files are programs, by suffix."""

FILES = (".mlir", ".mlirbc", ".bc", ".stablehlo", ".hlo", ".pb")
"""StableHLO and HLO."""
NOT_YET = {
    ".onnx": "an ONNX model",
    ".pt2": "a PyTorch program",
    ".pt": "a PyTorch model",
    ".pth": "a PyTorch model",
    ".keras": "a Keras model",
    ".h5": "a Keras model",
    ".tflite": "a TensorFlow Lite model",
}
"""Models that hlotune does not read, by suffix."""

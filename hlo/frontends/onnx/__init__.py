"""ONNX models as StableHLO.  Start at `model.py`.

Everything here runs in the process that parses program files, and imports onnx and jax.
"""

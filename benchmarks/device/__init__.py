"""What GPUs make of hlotune's kernels: `python -m benchmarks.device`, on a machine with one.

The parent (`run.py`) has no device; children measure (`measuring.py`), compile ahead
(`compiling.py`) and time PyTorch (`peer.py`), so that a kernel which faults costs one child.
"""

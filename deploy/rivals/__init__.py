"""Other runtimes on the same program: each runs its ONNX model in a process of its own.

`runtimes.py` has them in a table, `worker.py` is the process, `process.py` our side of it,
`contest.py` times them in turns with XLA and with ours.
"""

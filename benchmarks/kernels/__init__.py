"""Kernels of programs as users write them: hlotune, XLA and the peers, each case in one run.

    python -m benchmarks.kernels --cases 'softmax*' --seconds 20

A case is a row of a `cases_*.py`: adding one is adding a row, or a file that has `CASES`.  Each is
tuned by `hlotune.tune`, and called through what `hlotune.apply` makes of it, in turns with
`jax.jit` in the same process; each peer is a process of its own (`peer_*.py`).  Results are kept in
`docs/lab/results/kernels_CORE.jsonl`, a line a case, and the table of this kind of core is printed
from that file: a run may take a part of the cases, and the next one another.
"""

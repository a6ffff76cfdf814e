"""Whole models: hlotune, XLA and the peers, each model in one run.

    python -m benchmarks.peers.environments           sets up the peers under build/peers
    python -m benchmarks.models --models resnet18 mlp --seconds 60

Every example of `examples.py` is tuned from an empty database and called in turns with `jax.jit` in
one process.  Six of them, the networks of `networks.py`, run on other runtimes too, each in a
process and an environment of its own (`peer_*.py`), with the same weights as constants and the same
image or text: `torch_networks.py` builds them for PyTorch, and `converting.py` makes of that the
files that the others read.  Every answer is held against XLA's.

Runs of the tuner and converted files are kept under `build/models`, so that a command that was
interrupted goes on where it stopped.  Results are kept in `docs/lab/results/models_CORE.jsonl`, a
line a model, and the tables of this kind of core are printed from all that are there.
"""

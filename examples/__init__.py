"""Programs to tune, each a factory: `tune run examples/mlp.py:model`."""

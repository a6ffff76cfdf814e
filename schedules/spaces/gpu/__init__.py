"""Spaces of kernels for GPUs: `space.py` says what a space is, `table.py` has that of each kind."""

"""Annealing and its rivals, the tuner, the budget shared among kernels.  Start at `tune.py`."""

"""Targets, builders, runners, verification and timing.  Start at `trial.py`."""

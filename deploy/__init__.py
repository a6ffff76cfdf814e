"""Tuned programs: applied, frozen, compared with the default.  Start at `apply.py`."""

"""Learned models that rank schedules, and how well they do it.  Start at `model.py`."""

"""Schedules for GPUs to kernels, written in Pallas: see `build.py`."""

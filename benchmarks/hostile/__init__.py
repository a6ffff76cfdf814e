"""Damaged and forged files, and processes that are killed: `python -m benchmarks.hostile`."""

"""Reductions whose parts are summed apart by tasks or lanes."""

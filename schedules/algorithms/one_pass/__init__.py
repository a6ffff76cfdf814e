"""Sums about a mean, added up in the pass that finds the mean."""

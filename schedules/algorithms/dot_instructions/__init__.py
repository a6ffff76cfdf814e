"""Sums of products taken by dot instructions."""

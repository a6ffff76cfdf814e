"""Computes, expressions over loads, and the loop nests that schedules make of them."""

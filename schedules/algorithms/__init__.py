"""Rewritings of computes that precede every step, and the spaces that they bring."""

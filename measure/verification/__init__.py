"""Candidates checked against the oracle."""

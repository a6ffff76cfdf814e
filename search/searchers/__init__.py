"""Searchers: they propose schedules and observe their outcomes."""

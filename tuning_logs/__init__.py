"""The tuning database and what is read from it: records, decisions, reports.

Start at `database.py`.
"""

"""The `tune` command: each sub-command parses, calls, prints.  Start at `main.py`."""

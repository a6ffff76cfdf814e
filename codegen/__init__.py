"""Loop nests to machine code, machine code into a process, and XLA's call of it: see `built.py`."""

"""The machine that measures: its target, its processors, and who else uses it."""

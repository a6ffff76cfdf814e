"""The time of a run: which kernel gets the next batch, and what closing needs."""

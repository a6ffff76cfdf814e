"""Champions against defaults: the last measurements of a run."""

"""The schedule of a contraction that is measured first, derived from the machine alone."""

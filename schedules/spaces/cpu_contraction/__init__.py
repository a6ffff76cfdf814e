"""The space of contractions on CPUs."""

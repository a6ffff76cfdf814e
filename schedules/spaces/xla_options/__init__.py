"""Options of the default compiler, as a space of whole programs."""

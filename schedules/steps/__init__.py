"""The scheduling primitives, and the rules that a finished nest must obey."""

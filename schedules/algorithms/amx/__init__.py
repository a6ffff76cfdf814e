"""Contractions on the matrix unit of x86 processors (AMX)."""

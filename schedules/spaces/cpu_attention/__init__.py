"""Attention on CPUs: two products with the stages between them, block by block of queries."""

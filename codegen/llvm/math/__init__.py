"""Elementwise functions as LLVM text."""

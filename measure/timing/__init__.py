"""Kernels and defaults timed on the device."""

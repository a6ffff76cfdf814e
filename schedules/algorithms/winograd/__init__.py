"""Winograd's convolution."""

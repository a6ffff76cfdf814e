"""Scans whose axis is cut into blocks, which threads take."""

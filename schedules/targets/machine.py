"""Sizes that spaces, features and emitted code share, of all of today's processors."""

PAGE_BYTES = 4096
"""The size of a page of virtual memory."""
SHARED_ELEMENTS = 1 << 14
"""The number of elements from which on all threads share the work of packing or summing an
operand ahead of the loops."""

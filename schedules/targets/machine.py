"""Thresholds of today's processors that spaces, features and emitted code share."""

PAGE_BYTES = 4096
"""The size of a page of virtual memory."""
MOST_STRIDE = 4
"""The largest stride in elements at which whole runs are loaded and lanes picked from them.
Elements further apart are gathered."""
BUSY_PORTS = 0.75
"""Loads for each multiply-add above which the loads delay it; at 1 the load ports are full."""
SHARED_ELEMENTS = 1 << 14
"""The number of elements from which on all threads share the work of packing or summing an
operand ahead of the loops."""

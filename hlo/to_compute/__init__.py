"""From the operations of a kernel to its compute."""

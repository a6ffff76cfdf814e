"""Programs as callables, and the calls that take the place of kernels."""

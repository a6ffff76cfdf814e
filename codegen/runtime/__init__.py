"""Loading compiled kernels and calling them: dispatcher, thread pool, hosts."""

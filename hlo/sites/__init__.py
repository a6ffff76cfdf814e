"""The places in a program where kernels can stand."""

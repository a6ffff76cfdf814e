"""Spaces of computes without a contraction on CPUs, from elementwise kernels to softmax."""

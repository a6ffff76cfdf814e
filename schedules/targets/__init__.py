"""The devices that kernels are tuned for."""
